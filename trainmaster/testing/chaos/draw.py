"""Which jobs does an integer draw, and how unkind is the world to them?

The same seed draws the same jobs and the same mood, and rolls the same dice; but processes of a real machine take their own time,
so a seed does not replay what happened byte for byte, as it does in a simulated world.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from trainmaster.testing.witness import Destiny

_MB = 1_000_000


class Mood(StrEnum):
    """How unkind a world is."""

    #: everything there is
    HARSH = "harsh"
    #: only the way to the store is disturbed: machines and processes stay well
    SILENT = "silent"
    #: nothing at all
    KIND = "kind"


class ScriptPlan(Struct, frozen=True, kw_only=True):
    """How a script behaves; the same in every attempt. train.py reads it."""

    steps: int
    step_s: float
    #: steps between two saves; 0: it never saves
    save_every: int
    in_place: bool
    size_bytes: int
    #: pause between two pieces of a file
    piece_s: float
    code: int = 0
    crashes: int = 0
    crash_after: int = 5
    hangs_at: int | None = None
    ignores_term: bool = False
    saves_on_term: bool = True


class ChaosJob(Struct, frozen=True, kw_only=True):
    """A job that a user will submit, and what the user does then."""

    name: str
    script: ScriptPlan
    failures: int
    interruptions: int
    keep: int
    settle_s: float
    grace_s: float
    #: the user stays with `run` instead of `submit`
    is_followed: bool
    #: seconds after which the user asks for its end; None: never
    stop_after_s: float | None

    @property
    def destiny(self) -> Destiny:
        """What becomes of it when nobody disturbs it."""
        script = self.script
        if script.hangs_at is not None:
            return Destiny(None, is_stopped=True)
        is_used_up = script.crashes > self.failures
        return Destiny(3 if is_used_up else script.code, is_stopped=self.stop_after_s is not None)


def draw_mood(seed: int) -> Mood:
    """Most worlds are harsh."""
    return Mood.SILENT if random.Random(f"mood {seed}").random() < 0.2 else Mood.HARSH


def draw_jobs(seed: int) -> Iterator[ChaosJob]:
    """One job after the other, as long as somebody wants more."""
    rng = random.Random(f"jobs {seed}")
    number = 0
    while True:
        yield _draw_job(rng, number)
        number += 1


def _draw_job(rng: random.Random, number: int) -> ChaosJob:
    steps, code = rng.choice((5, 15, 30)), rng.choice((0, 0, 0, 0, 0, 7))
    crashes = rng.choice((0, 0, 0, 1, 2))
    hangs = rng.random() < 0.12
    settle_s = rng.choice((0.1, 0.2, 0.4))
    script = ScriptPlan(
        steps=steps,
        step_s=rng.choice((0.05, 0.1, 0.2)),
        save_every=rng.choice((0, 3, 3, 5)),
        in_place=rng.random() < 0.5,
        size_bytes=int(rng.choice((0.01, 0.2, 1.0, 2.0)) * _MB),
        # Longer than the settling time: a look that does not see who writes takes half a file for a whole one.
        piece_s=min(0.6, settle_s * rng.choice((0.0, 0.1, 0.5, 3.0))),
        code=code,
        crashes=crashes,
        crash_after=rng.randint(1, 8),
        hangs_at=rng.randint(1, steps) if hangs else None,
        ignores_term=rng.random() < 0.25,
        saves_on_term=rng.random() < 0.7,
    )
    return ChaosJob(
        name=f"job-{number}",
        script=script,
        failures=rng.choice((0, 2, 5, 50) if code == 0 else (0, 2)),
        interruptions=rng.choice((0, 2, 20, 50)),
        keep=rng.choice((1, 2, 5)),
        settle_s=settle_s,
        grace_s=rng.choice((0.5, 2.0)),
        is_followed=rng.random() < 0.3,
        stop_after_s=rng.uniform(2.0, 10.0) if hangs or rng.random() < 0.15 else None,
    )
