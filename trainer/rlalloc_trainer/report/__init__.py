"""What came of a simulated stream, in figures and pictures: ``rlalloc simulate run`` (docs/simulator.md)."""

from rlalloc_trainer.report.history import History, JobEnd, Run, Wait
from rlalloc_trainer.report.measures import Distribution, Measures, measure
from rlalloc_trainer.report.recording import RecordedSimulator

__all__ = ["Distribution", "History", "JobEnd", "Measures", "RecordedSimulator", "Run", "Wait", "measure"]
