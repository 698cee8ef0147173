"""What differs between versions of Slurm: one module a generation, and nothing about versions anywhere else.

``capabilities.py`` explains each fact, ``selection.py`` chooses the generation by slurmctld's version. To add a
version: write ``slurm_YY_MM.py`` beside these (it is found by its name), and record what its commands print with
``scripts/record-fixtures.sh``. tests/daemon/test_slurm_generations.py says what is missing.
"""

from rlallocd.slurm.generations.capabilities import Capabilities
from rlallocd.slurm.generations.selection import capabilities_of, generations, same_release

__all__ = ["Capabilities", "capabilities_of", "generations", "same_release"]
