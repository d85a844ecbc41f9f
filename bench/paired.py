"""What do rounds of pairs show? A ratio to what was measured beside it, and how sure it is."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_DRAWS = 4000
_SURE = 0.95
#: Fewer cannot show an interval.
ROUNDS_MIN = 6


@dataclass(frozen=True, kw_only=True)
class Shift:
    """How much more than its partner, as a share: the median of the rounds, and the interval that it lies in, 19 times of 20."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:+.1%} ({self.low:+.1%} … {self.high:+.1%})"


def shift(ours: Sequence[float], beside: Sequence[float]) -> Shift:
    """The same place in both lists is the same round: a slow minute of the machine is in both, and falls out."""
    ratios = [a / b - 1 for a, b in zip(ours, beside, strict=True)]
    rng = random.Random(1)  # the same numbers give the same interval
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(_DRAWS))
    aside = int(_DRAWS * (1 - _SURE) / 2)
    return Shift(median=statistics.median(ratios), low=medians[aside], high=medians[-1 - aside], rounds=len(ratios))


def is_below(found: Shift, limit: float, noise: Shift) -> bool | None:
    """Whether it is no more than the limit; None when nothing is shown.

    That is so when the limit lies inside the interval, and when like against like, in the same rounds, is not known to be the same
    within the limit.
    """
    if found.rounds < ROUNDS_MIN or max(abs(noise.low), abs(noise.high)) > limit:
        return None
    if found.high <= limit:
        return True
    return False if found.low > limit else None
