"""The engine validated against a real slurmctld: one workload on both, job by job (docs/results/validation.md).

``validation_settings`` and ``contention`` say what is run, ``recorded_run`` what happened on the real site;
``simulated_run`` runs the same in the engine, ``job_comparison`` compares the two, ``deviation_reasons`` explains why
jobs differ, and ``chaos`` measures what no simulator can know. The real site is ``bench/slurm_replay``, a program of
its own.
"""
