"""What a promotion left half done when its process was killed (SIGKILL, a power cut), put right at the next start.

A promotion notes the change, switches ``current``, and commits its row in the store, in this order. Each step is
atomic, the three together are not. ``current`` is what the agent serves, so the notes and the rows are made to agree
with it.
"""

import contextlib
from typing import Final

from rlalloc.errors import PolicyError
from rlalloc.policy.policies import SHIPPED_NAME, Manifest, PolicyStore
from rlalloc.store import PolicyRow, Store

MENDER: Final = "rlalloc"
"""Who put it right, in the notes of the policy store."""


def mend_interrupted_promotion(policies: PolicyStore, store: Store, *, wait: bool) -> tuple[str, ...]:
    """Make the notes and the store's rows agree with the versions that are there; return what was done, in words.

    Nothing is done while another process promotes, unless told to ``wait`` for it. Raises PolicyError or StoreError.
    """
    if not policies.directory.is_dir():
        return ()
    with policies.locked(wait=wait) as ours:
        return (*_mend_notes(policies), *_mend_rows(policies, store)) if ours else ()


def _mend_notes(policies: PolicyStore) -> list[str]:
    """Take back the note of a change that was not made."""
    notes, current = policies.promotions(), policies.current() or SHIPPED_NAME
    if not notes or notes[-1].version == current or notes[-1].before != current:
        return []  # nothing to take back; or somebody changed the link by hand
    noted = notes[-1].version
    reason = f"the promotion of {noted} was interrupted before it came into use"
    policies.put_in_use(current, by=MENDER, reason=reason, undoes=True)
    return [f"{reason}: {current} stays in use"]


def _mend_rows(policies: PolicyStore, store: Store) -> list[str]:
    """Add the rows of versions that a gate has judged and that the store does not have."""
    known = {row.version for row in store.policies()}
    once_in_use = {note.before for note in policies.promotions()} | {policies.current()}
    done = []
    for version in policies.versions():
        manifest = None
        with contextlib.suppress(PolicyError):  # a damaged one: `rlalloc policy list` says so
            manifest = policies.manifest(version)
        if version in known or manifest is None or "promote" not in manifest.evaluation:
            continue
        store.add_policy(_row(manifest, promoted=manifest.refusal is None and version in once_in_use))
        state = "in use" if version == policies.current() else "not in use"
        done.append(f"{version} ({state}) was not in the store, because its training was interrupted: recorded now")
    return done


def _row(manifest: Manifest, *, promoted: bool) -> PolicyRow:
    return PolicyRow(
        version=manifest.version,
        parent=manifest.parent,
        created_s=manifest.created_s,
        promoted=promoted,
        verdict=manifest.evaluation,
    )
