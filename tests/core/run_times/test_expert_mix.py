"""What is learned from answers: of a user's own jobs, and of all jobs of the site."""

import math

import numpy as np

from rlalloc.run_times.expert_mix import ANSWERS, COLUMNS, ExpertMix, answers_of
from rlalloc.run_times.recent_runs import FEATURES

LAST = ANSWERS.index("user_limit_size_last")
LATELY, LONG_AGO = 2.0, 5.0


def answers(situation: float) -> np.ndarray:
    """All say 2^6 s; the last run of the jobs alike took 2^10 s."""
    row = np.full(len(COLUMNS), 6.0)
    row[LAST], row[-1] = 10.0, situation
    return row


def learned(mix: ExpertMix, user: str, jobs: int, situation: float = LATELY, log_run: float = 10.0) -> ExpertMix:
    for number in range(jobs):
        mix.learn(((user,), (user, 1)), answers(situation), 1e4 * number, log_run)
    return mix


def shift(mix: ExpertMix, user: str, situation: float = LATELY) -> float:
    return float(mix.shift([((user,), (user, 1))], answers(situation)[None])[0])


def test_what_is_good_for_other_users_counts_for_one_of_whom_little_is_known() -> None:
    """The other users' jobs run as long as their last ones; two of this user's jobs were between all answers."""
    alone = shift(learned(ExpertMix(), "new", 2, log_run=8.0), "new")
    mix = learned(ExpertMix(), "another", 300)
    assert shift(mix, "new") == 0.0, "the model alone answers until a job of the user has ended"
    assert shift(learned(mix, "new", 2, log_run=8.0), "new") > 2.0 * alone


def test_a_last_run_counts_more_where_last_runs_of_that_age_were_right() -> None:
    mix = learned(learned(ExpertMix(), "first", 100, LATELY), "second", 100, LONG_AGO, log_run=6.0)
    learned(mix, "new", 2, log_run=8.0)
    assert shift(mix, "new", LATELY) > 2.0 * shift(mix, "new", LONG_AGO)


def test_the_users_own_jobs_decide_where_no_answer_is_better_for_all_others() -> None:
    mix = learned(learned(ExpertMix(), "another", 1000, log_run=8.0), "user", 30, log_run=10.0)
    assert shift(mix, "user") > 3.0


def test_a_burst_counts_less_than_as_many_single_jobs() -> None:
    """Thirty jobs after as many others, whose last runs told nothing: the burst does not make these forgotten."""
    single, burst = (learned(ExpertMix(), "user", 30, log_run=6.0) for _ in range(2))
    learned(single, "user", 30)
    for _ in range(30):
        burst.learn((("user",), ("user", 1)), answers(LATELY), 1e7, 10.0)
    assert 0.0 < shift(burst, "user") < 0.5 * shift(single, "user")


def test_a_situation_is_how_long_ago_a_job_alike_has_ended() -> None:
    features = np.full((4, len(FEATURES)), math.nan, np.float32)
    features[1:, FEATURES.index("user_age")] = 3.0
    features[2:, FEATURES.index("user_limit_size_age")] = 3.9, 12.1
    found = answers_of(features, np.ones((4, 3)))
    assert found[:, -1].tolist() == [-2.0, -1.0, 0.0, 3.0]
    assert (found[:, :-1] == 1.0).all(), "the model's median stands in for what is unknown"
