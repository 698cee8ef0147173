"""Whether a term of tensor- and pipeline-parallel communication would help to predict how a model scales.

MLPerf's GPT-3 on H100 is the only model of the tables that needs both and was measured on several GPU counts. Its
layout and micro-batch are not in the table. So each layout that GPT-3 is trained in is predicted from its smallest
count, beside the belief, which has no such term.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rlalloc.llm.training_setup import Training
from rlalloc.speed.gpu_speeds import speed_of
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.training_step import CONSTANTS, StepConstants, step_s
from rlalloc_research.llm_memory_cases import gpt
from rlalloc_research.speed_model.measured_tables import Family, Point

_MODEL: Final = "gpt3"
_GPU: Final = "H100"
_SEQUENCE: Final = 2048
_LAYOUTS: Final = ((4, 8), (8, 8), (8, 4))
_MICRO_BATCHES: Final = (1, 2)
_GPUS_A_NODE: Final = 8


class LayoutError(NamedTuple):
    """Relative errors of the predicted speed by GPU count; ``how`` says what predicted it."""

    how: str
    errors: dict[int, float]


def layout_errors(
    families: Sequence[Family], priors: Mapping[str, SpeedBelief], constants: StepConstants = CONSTANTS
) -> list[LayoutError]:
    """The belief's errors, then those of each layout; empty where the tables do not have the model."""
    return [
        row
        for family in families
        if family.model == _MODEL and _GPU in family.gpu_type
        for row in _rows(family, priors[_MODEL], constants)
    ]


def _rows(family: Family, prior: SpeedBelief, constants: StepConstants) -> Iterator[LayoutError]:
    points = sorted(family.points)
    smallest, larger = points[0], points[1:]
    measured = family.measurements()
    known = measured.layouts.gpus == smallest.gpus
    seen, wanted = measured.chosen(known), measured.chosen(~known)
    predicted = prior.updated(seen).predicted(seen, wanted.layouts, 0)
    errors = np.expm1(predicted - wanted.log_speed).tolist()
    yield LayoutError("the belief, no such term", dict(zip(map(int, wanted.layouts.gpus), errors, strict=True)))
    for tensor, pipeline in _LAYOUTS:
        for micro_batch in _MICRO_BATCHES:
            first = _samples_per_s(smallest, tensor, pipeline, micro_batch, constants)
            ratios = {
                point.gpus: _samples_per_s(point, tensor, pipeline, micro_batch, constants) / first
                for point in larger
            }
            errors_of = {point.gpus: ratios[point.gpus] / (point.speed / smallest.speed) - 1.0 for point in larger}
            yield LayoutError(f"TP {tensor} x PP {pipeline}, micro-batch {micro_batch}", errors_of)


def _samples_per_s(point: Point, tensor: int, pipeline: int, micro_batch: int, constants: StepConstants) -> float:
    copies = point.gpus // (tensor * pipeline)
    training = Training(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        data_parallel=copies,
        micro_batch=micro_batch,
        sequence=_SEQUENCE,
        zero_stage=1,
    )
    batches = max(1, round(point.global_batch / (copies * micro_batch)))
    whole_step_s = step_s(
        gpt(96, 12288, 96), training, _GPUS_A_NODE, speed_of(_GPU.lower()), micro_batches=batches, constants=constants
    )
    return point.global_batch / whole_step_s
