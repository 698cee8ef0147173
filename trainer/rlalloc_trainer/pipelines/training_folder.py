"""The folder of a training from nothing: what is done so far, so that an interrupted one goes on from there.

::

    training/
    ├── settings.json                   another training does not go on in it
    ├── advantages/1000000.safetensors  the decisions of a workload that were taken again
    ├── seed-0/sac.safetensors          all of SAC when it had learned
    ├── seed-0/curves.json              SAC's figures on the way; the last file of a seed that has learned
    └── results/                        of each policy on each validation and test workload

Files appear whole or not at all. All randomness of a step follows from the seed and the step, so that an interrupted
training gives the same files, byte for byte.
"""

from pathlib import Path
from typing import Final

import msgspec
import safetensors.numpy

from rlalloc.errors import PolicyError
from rlalloc_agent.actor import Actor
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.advantages.counterfactual import Advantages
from rlalloc_trainer.sac.soft_actor_critic import Sac

SETTINGS_FILE: Final = "settings.json"


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of SAC over the gradient steps of the whole training: ``values`` at ``steps``."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


Curves = dict[str, Curve]
"""By what it is a figure of."""


class SeedOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a seed came to: mean JCT over the baseline's on the validation workloads, and SAC's figures on the way."""

    seed: int
    ratio: Interval
    curves: Curves


class TrainingFolder:
    """What a training has done so far, under one folder."""

    def __init__(self, path: Path, settings: msgspec.Struct) -> None:
        """Open the folder or make it. Raises PolicyError if another training is in it."""
        self.path = path
        wanted = msgspec.json.format(msgspec.json.encode(settings)) + b"\n"
        if not (path / SETTINGS_FILE).exists():
            self._write(path / SETTINGS_FILE, wanted)
        elif (path / SETTINGS_FILE).read_bytes() != wanted:
            raise PolicyError(
                f"{path} holds a training with other settings ({path / SETTINGS_FILE}): use the same to continue "
                "it, or name another folder"
            )

    def advantages(self, workload: int) -> Advantages | None:
        """Return the advantages of a workload, or None if there are none yet."""
        path = self._advantages(workload)
        return Advantages(**safetensors.numpy.load_file(path)) if path.exists() else None

    def keep_advantages(self, workload: int, advantages: Advantages) -> None:
        """Keep the advantages of a workload."""
        self._write(self._advantages(workload), safetensors.numpy.save(msgspec.structs.asdict(advantages)))

    def curves(self, seed: int) -> Curves | None:
        """Return the curves of a seed that has learned, or None if it has not."""
        path = self._seed(seed) / "curves.json"
        return msgspec.json.decode(path.read_bytes(), type=Curves) if path.exists() else None

    def load_sac(self, seed: int, sac: Sac[Actor]) -> None:
        """Let ``sac`` be what it was when that seed had learned."""
        sac.load(self._seed(seed) / "sac.safetensors")

    def keep_learned(self, seed: int, sac: Sac[Actor], curves: Curves) -> None:
        """Keep what a seed has learned, and how."""
        aside = self._seed(seed) / ".sac.safetensors"
        aside.parent.mkdir(parents=True, exist_ok=True)
        sac.save(aside)
        aside.replace(aside.with_name("sac.safetensors"))
        self._write(self._seed(seed) / "curves.json", msgspec.json.encode(curves))

    @property
    def results(self) -> Path:
        """The folder in which results of policies on validation and test workloads are kept."""
        return self.path / "results"

    def _seed(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    def _advantages(self, workload: int) -> Path:
        return self.path / "advantages" / f"{workload}.safetensors"

    def _write(self, path: Path, content: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}")
            aside.write_bytes(content)
            aside.replace(path)
        except OSError as err:
            raise PolicyError(f"cannot write {path}: {err.strerror}; make room, and run the command again") from err
