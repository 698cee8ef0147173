"""A small site whose run times a predictor can learn: each user's families have a length of their own."""

import numpy as np

from rlalloc.past_job import PastJob


def synthetic_jobs(number: int, seed: int = 0, users: int = 12) -> list[PastJob]:
    """Return jobs in the order of their submission; a family's run times are lognormal with a factor of 1.5."""
    random = np.random.default_rng(seed)
    families = random.uniform(5.0, 14.0, (users, 3))
    jobs = []
    submitted_s = 1.7e9
    for index in range(number):
        submitted_s += float(random.exponential(300.0))
        user, family = int(random.integers(users)), int(random.integers(3))
        run_s = float(np.exp2(families[user, family] + random.normal(0.0, 0.6)))
        limit_s = float(random.choice([3600.0, 14400.0, 86400.0]))
        started_s = submitted_s + float(random.exponential(600.0))
        timeout = run_s > limit_s
        jobs.append(
            PastJob(
                job_id=str(index + 1),
                user=f"user{user}",
                account=f"account{user % 3}",
                partition="gpu",
                qos="normal",
                job_class=("train", "finetune", "")[family],
                name=f"run-{'abc'[family]}-{index}",
                submitted_s=submitted_s,
                started_s=started_s,
                ended_s=started_s + min(run_s, limit_s),
                state="TIMEOUT" if timeout else "COMPLETED",
                nodes=1,
                cpus=8 * (family + 1),
                gpus=family + 1,
                mem_mib=32000.0,
                limit_s=limit_s,
            )
        )
    return jobs
