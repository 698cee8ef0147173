"""The outcome of a simulated workload, in figures and pictures: docs/explanation/simulator.md."""

from rlalloc_simulator.report.history import History, JobEnd, Run, Wait
from rlalloc_simulator.report.job_figures import Distribution, Measures, measure
from rlalloc_simulator.report.recording import RecordedSimulator

__all__ = ["Distribution", "History", "JobEnd", "Measures", "RecordedSimulator", "Run", "Wait", "measure"]
