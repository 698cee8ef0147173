"""The engine held against a real slurmctld: one workload on both, job by job (docs/results/validation.md).

``settings`` and ``contention`` say what is run, ``recorded`` what came of it on the real site, ``simulated`` runs the
same in the engine, ``comparison`` sets one against the other, ``reasons`` says why jobs differ and ``chaos`` how much
nobody can know. The real site itself is ``bench/slurm_replay``, a program of its own.
"""
