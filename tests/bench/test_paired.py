"""Rounds of pairs show a small difference that a noisy machine would hide, and say when they do not."""

import random

import pytest

from bench.paired import Shift, is_below, shift


def rounds_of(share, noise, count=12, seed=4):
    """A machine whose speed drifts by a fifth, and pairs that differ by `share`."""
    rng = random.Random(seed)
    bare = [5.0 * (1 + 0.2 * rng.random()) for _ in range(count)]
    ours = [one * (1 + share) * (1 + rng.gauss(0, noise)) for one in bare]
    return ours, bare


SAME = Shift(median=0.0, low=-0.001, high=0.001, rounds=12)


def test_what_both_of_a_pair_suffer_falls_out():
    found = shift(*rounds_of(0.006, 0.001))
    assert found.median == pytest.approx(0.006, abs=0.001)
    assert found.low <= found.median <= found.high
    assert found.high - found.low < 0.003
    assert is_below(found, 0.01, SAME) is True


def test_too_much_noise_shows_nothing():
    assert is_below(shift(*rounds_of(0.01, 0.05)), 0.01, SAME) is None
    unlike = shift(*rounds_of(0.0, 0.05))
    assert is_below(shift(*rounds_of(0.006, 0.001)), 0.01, unlike) is None, "like against like differs by more than is wanted"


def test_what_is_too_much_is_said():
    assert is_below(shift(*rounds_of(0.03, 0.002)), 0.01, SAME) is False


def test_the_same_numbers_give_the_same_interval():
    assert shift(*rounds_of(0.006, 0.01)) == shift(*rounds_of(0.006, 0.01))


def test_a_few_rounds_show_nothing():
    found = shift([5.01], [5.0])
    assert str(found) == "+0.2% (+0.2% … +0.2%)"
    assert is_below(found, 0.01, SAME) is None
