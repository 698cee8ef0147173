"""How fast a job runs on a number of GPUs: measured curves, and a model with its uncertainty.

``measured_curves``  speed-ups as published; one of them is what decisions assume
``step_time``        time of a training step from few parameters
``training_step``    the same from the model's architecture and its parallel plan
``gpu_speeds``       what a type of GPU computes and communicates
``type_speeds``      how much faster a job runs on one type of GPU than on another
``speed_belief``     what is known of those parameters, with its uncertainty
``speed_prior``      what is believed of a job of which nothing is known
``cpus_needed``      CPUs that a GPU needs for full speed
``measured_scaling`` speeds as measured, below which no expectation falls
``profile_file``     the file that ``rlalloc profile`` writes
``profiled_speeds``  what such files say of a job
``family_speeds``    what a family's own runs say
``longer_limits``    by how much a time limit grows with a smaller size
"""

from rlalloc.speed.measured_curves import CURVES, PRIOR, SpeedCurve

__all__ = ["CURVES", "PRIOR", "SpeedCurve"]
