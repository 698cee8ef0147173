"""What each user may ask for of rlallocd."""

from rlallocd.users.user_pace import ALLOWANCE, PER_S, UserPace


def test_an_allowance_is_used_up_and_fills_up_again() -> None:
    now_s = [0.0]
    pace = UserPace(lambda: now_s[0])
    for _ in range(int(ALLOWANCE)):
        assert pace.wait_s(1, 1.0) == 0
    assert pace.wait_s(1, 1.0) == 1 / PER_S
    assert pace.wait_s(2, ALLOWANCE) == 0  # another user has an own one
    now_s[0] = 1 / PER_S
    assert (pace.wait_s(1, 1.0), pace.wait_s(1, 1.0)) == (0, 1 / PER_S)
    now_s[0] = 1e6
    assert pace.wait_s(1, ALLOWANCE) == 0
