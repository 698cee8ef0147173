"""What the daemon makes of the words in a job's tag."""

import msgspec

from rlalloc.config import Config, Rule
from rlallocd.candidates import Candidate, job_view
from rlallocd.job_tag import Tag, read_tag
from rlallocd.request_sizes import size_on
from tests.core.strategies import SHAPE

from .test_redecision_rules import cluster_view, pending_job

CONFIG = Config()
WORDS = "words=nproc-per-node=$SLURM_GPUS_ON_NODE+torchrun"
TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=0;ask=;"


def tag_of(rest: str) -> Tag:
    tag = read_tag(TAG + rest)
    assert tag is not None
    return tag
