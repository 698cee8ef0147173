"""A judged candidate becomes a version: stored whatever the verdict, and promoted if nothing came in between.

The evidence compares a candidate with the policy that was in use when the retraining began. Training takes long, and
somebody may promote another version meanwhile. So promotion is a compare-and-swap, under the lock of the policy
store: where another version is in use now, the candidate is stored and not promoted.
"""

from typing import Final, NamedTuple

import msgspec

from rlalloc.errors import StoreError
from rlalloc.policy.policies import SHIPPED_NAME, Manifest, PolicyStore
from rlalloc.store import PolicyRow, Store
from rlalloc_trainer.promotion.gate import Verdict

SHIPPED: Final = "the shipped policy"
TRAINING: Final = "rlalloc train run"
"""Who promotes what the gate accepts, in the notes of the policy store."""


class JudgedCandidate(NamedTuple):
    """The files of a candidate, its manifest without an evaluation, and what the gate said.

    ``compared_with`` is the version of the policy store that was in use when the evidence was measured; None was the
    shipped policy.
    """

    files: dict[str, bytes]
    manifest: Manifest
    verdict: Verdict
    compared_with: str | None


def store_candidate(candidate: JudgedCandidate, policies: PolicyStore, store: Store) -> tuple[str, Verdict]:
    """Store the candidate and its verdict, and promote it if the verdict still holds. Returns version and verdict.

    The row in ``store`` and the version in use agree: the row is committed only once the version is in use, and where
    the commit fails, the version before is put in use again. Raises PolicyError or StoreError; then nothing was
    promoted and no row written.
    """
    with policies.locked():
        verdict = if_still_in_use(candidate.verdict, candidate.compared_with, policies.current())
        evaluation: dict[str, object] = msgspec.to_builtins(verdict)
        manifest = msgspec.structs.replace(candidate.manifest, evaluation=evaluation)
        version = policies.add(candidate.files, manifest)
        row = PolicyRow(
            version=version,
            parent=manifest.parent,
            created_s=manifest.created_s,
            promoted=verdict.promote,
            verdict=evaluation,
        )
        before = policies.current() or SHIPPED_NAME
        try:
            with store.adding_policy(row):
                if verdict.promote:
                    policies.put_in_use(version, by=TRAINING, reason=verdict.reason)
        except StoreError as err:
            if (policies.current() or SHIPPED_NAME) != before:
                policies.put_in_use(before, by=TRAINING, reason=f"not recorded: {err}", undoes=True)
            raise
    return version, verdict


def if_still_in_use(verdict: Verdict, compared_with: str | None, in_use: str | None) -> Verdict:
    """Return ``verdict``, or a refusal where another version is in use than the candidate was compared with."""
    if not verdict.promote or in_use == compared_with:
        return verdict
    return Verdict(
        promote=False,
        reason=(
            f"{verdict.evidence.candidate} is not promoted: {in_use or SHIPPED} came into use while it was compared "
            f"with {compared_with or SHIPPED}; the next training compares with {in_use or SHIPPED}"
        ),
        evidence=verdict.evidence,
    )
