"""What kind of world is it? One integer draws jobs, users, fleet and faults, often absent, sometimes harsh."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core.facts import Timing
from trainmaster.spec.job_spec import Checkpoints, JobSpec, Limits, Resources, Retry
from trainmaster.testing.sim_fleet import FleetPlan
from trainmaster.testing.sim_net import Luck
from trainmaster.testing.sim_script import Script

HOUR = 3600.0


class JobPlan(Struct, frozen=True, kw_only=True):
    """A job that a user will submit, and what the user does then."""

    job_id: str
    spec: JobSpec
    script: Script
    submit_s: float
    stop_s: float | None = None


class Cut(Struct, frozen=True, kw_only=True):
    """Two parties that cannot reach each other for a while."""

    at_s: float
    one: str
    other: str
    for_s: float


class WorldPlan(Struct, kw_only=True):
    """Everything that was drawn before the world begins."""

    seed: int
    timing: Timing
    heartbeat_s: float
    jobs: list[JobPlan]
    fleet: FleetPlan
    luck: dict[str, Luck]
    cuts: list[Cut]
    #: when the faults stop
    calm_s: float
    control_planes: int = 1
    #: kills of each control plane, an hour
    crashes_an_hour: float = 0.0
    restart_s: float = 120.0
    #: pauses of each control plane, an hour
    stalls_an_hour: float = 0.0
    control_skew_s: float = 0.0
    #: seconds by which a control plane's clock jumps now and then
    jump_s: float = 0.0
    #: from here on there is no control plane any more
    dead_from_s: float | None = None

    @property
    def has_machine_trouble(self) -> bool:
        """Whether machines go, stop or never begin by themselves."""
        fleet = self.fleet
        odds = (fleet.preempted_an_hour, fleet.paused_an_hour, fleet.dud, fleet.stillborn, fleet.slow_boot)
        dies = any(luck.caller_dies for luck in self.luck.values())
        return any(odds) or dies

    @property
    def is_kind(self) -> bool:
        """Whether nothing can go wrong."""
        lies = self.fleet.stale_s or self.fleet.stockouts
        clocks = self.control_skew_s or self.fleet.skew_s or self.jump_s or self.fleet.jumps_an_hour
        people = self.crashes_an_hour or self.stalls_an_hour or self.dead_from_s is not None
        return not (self.has_machine_trouble or lies or clocks or people or self.cuts) and all(
            luck.is_calm for luck in self.luck.values()
        )


def draw_world(seed: int) -> WorldPlan:
    """The world of one integer."""
    rng = random.Random(f"world {seed}")
    heartbeat_s = rng.choice((15.0, 30.0, 60.0))
    timing = Timing(
        attempt_lease_s=heartbeat_s * rng.choice((3, 5)),
        lease_margin_s=heartbeat_s * 2,
        start_s_max=rng.choice((600.0, 1200.0)),
        machine_s_max=rng.choice((6, 24)) * HOUR,
        stop_margin_s=60.0,
        look_s=rng.choice((15.0, 30.0, 60.0)),
        soon_s=5.0,
        poll_s=rng.choice((10.0, 20.0, 30.0)),
    )
    hours = rng.choice((1.0, 2.0, 4.0, 8.0))
    world = WorldPlan(
        seed=seed,
        timing=timing,
        heartbeat_s=heartbeat_s,
        jobs=_draw_jobs(rng, seed, hours),
        fleet=FleetPlan(machines=rng.choice((1, 2, 4, 8))),
        luck={"store": Luck(), "database": Luck(), "fleet": Luck()},
        cuts=[],
        calm_s=hours * HOUR,
        control_planes=rng.choice((1, 1, 2)),
    )
    if rng.random() < 0.1:
        world.timing = replace(timing, machine_s_max=240 * HOUR)
        return _fitting(world)  # a kind world: what must happen is known
    if rng.random() < 0.12:
        _draw_silence(rng, world)
        return _fitting(world)
    _draw_fleet(rng, world)
    _draw_luck(rng, world)
    _draw_cuts(rng, world)
    _draw_control(rng, world)
    if rng.random() < 0.2:
        _draw_theme(rng, world)
    if rng.random() < 0.2:
        _draw_blind(world)
    return _fitting(world)


def _draw_silence(rng: random.Random, world: WorldPlan) -> None:
    """Machines and processes are well; only messages are late, lost or cut off, often while a script trains."""
    world.timing = replace(world.timing, machine_s_max=240 * HOUR)
    for luck in world.luck.values():
        luck.late, luck.late_s = _harsh(rng, (0.01, 0.2)), rng.choice((5.0, 120.0))
        luck.lost, luck.reply_lost, luck.error = _harsh(rng, (0.01, 0.2)), _harsh(rng, (0.01, 0.1)), _harsh(rng, (0.01, 0.3))
    _draw_late_writes(rng, world.luck["store"])
    pairs = (
        ("machine:*", "store"),
        ("machine:*", "store"),
        ("control:*", "store"),
        ("control:*", "fleet"),
        ("control:*", "database"),
    )
    for _ in range(rng.randint(1, 5)):
        one, other = rng.choice(pairs)
        for_s = rng.choice((600.0, 3600.0, 10800.0)) * rng.uniform(0.5, 1.5)
        world.cuts.append(Cut(at_s=rng.uniform(0, world.calm_s), one=one, other=other, for_s=for_s))


def _draw_theme(rng: random.Random, world: WorldPlan) -> None:
    """Faults that are dangerous together and would seldom meet by chance."""
    store, fleet = world.luck["store"], world.luck["fleet"]
    match rng.choice(("late writes", "old writes", "late machines", "late sleepers", "flapping")):
        case "late writes":
            # A marker under way when its machine is taken arrives after the attempt was given up.
            store.late, store.late_s = 0.15, 300.0
            world.fleet.preempted_an_hour, world.fleet.notice = 12.0, 0.0
        case "old writes":
            # What was written long ago is written over what is true now, where a lease is all that tells who lives.
            store.ghost, store.ghost_s, store.twice, store.twice_s = 0.2, 900.0 - store.patience_s, 0.3, 900.0
            world.fleet.stale_s = 600.0
            world.fleet.paused_an_hour, world.fleet.pause_s = 2.0, 900.0
            if rng.random() < 0.5:
                _draw_blind(world)
        case "late machines":
            # A machine that was asked for long ago arrives when nobody wants it any more.
            fleet.ghost, fleet.twice, fleet.twice_s = 0.3, 0.3, 900.0
            world.fleet.dud, world.fleet.stillborn = 0.3, 0.3
        case "late sleepers":
            # A runner paused in the middle of a commit is given up, and wakes.
            world.fleet.paused_an_hour, world.fleet.pause_s = 12.0, 900.0
            _draw_blind(world)
        case "flapping":
            # Nobody lives long enough to finish a thought.
            world.crashes_an_hour, world.restart_s, world.control_planes = 60.0, 30.0, 2
            world.fleet.stale_s = 60.0


def _draw_jobs(rng: random.Random, seed: int, hours: float) -> list[JobPlan]:
    """What users submit; some stop a job and submit it again."""
    jobs = [_draw_job(rng, seed, number, hours) for number in range(rng.randint(1, 4))]
    for job in list(jobs):
        if job.stop_s is not None and rng.random() < 0.5:
            jobs.append(replace(job, job_id=f"{job.job_id}r", submit_s=job.stop_s + rng.choice((1.0, 60.0)), stop_s=None))
    return jobs


def _draw_blind(world: WorldPlan) -> None:
    """Hosts of one's own: nobody can confirm that one is gone, so leases decide, and clocks must agree within the margin."""
    world.fleet.is_blind = True
    world.fleet.stale_s = 0.0
    world.jump_s = 0.0
    half_margin_s = world.timing.lease_margin_s / 2
    world.fleet.skew_s = min(world.fleet.skew_s, half_margin_s / 2)
    world.control_skew_s = min(world.control_skew_s, half_margin_s / 2)


def _draw_job(rng: random.Random, seed: int, number: int, hours: float) -> JobPlan:
    steps = rng.choice((3, 20, 60, 200))
    script = Script(
        steps=steps,
        step_s=rng.choice((10.0, 60.0)),
        save_every=rng.choice((0, 5, 10, 30)),
        save_s=rng.choice((0.5, 3.0, 20.0)),
        code=rng.choice((0, 0, 0, 3)),
        crashes=rng.choice((0, 0, 0, 1, 3)),
        crash_after=rng.randint(1, 20),
        hangs_at=rng.choice((None, None, None, None, None, rng.randint(1, steps))),
        ignores_term=rng.random() < 0.2,
        saves_on_term=rng.random() < 0.7,
    )
    limit_s = rng.choice((None, None, 0.5, 1.0, 4.0))
    spec = JobSpec(
        name=f"train-{number}",
        entry_point="train.py",
        provider="simulated",
        retry=Retry(failures=rng.choice((0, 1, 3)), interruptions=rng.choice((0, 2, 10, 50))),
        limits=Limits(
            run=None if limit_s is None else limit_s * HOUR,
            grace=rng.choice((10.0, 60.0)),
            queue=rng.choice((None,) * 9 + (0.5 * HOUR,)),
            wait=rng.choice((None,) * 9 + (HOUR,)),
        ),
        checkpoints=Checkpoints(keep=rng.choice((1, 3))),
        resources=Resources(nodes=rng.choice((1, 1, 1, 2))),
        priority=rng.choice((0, 0, 5)),
    )
    stop_s = rng.uniform(0, hours * HOUR) if rng.random() < 0.25 else None
    submit_s = rng.choice((0.0, rng.uniform(0, hours * HOUR / 2)))
    return JobPlan(job_id=f"s{seed}-{number}", spec=spec, script=script, submit_s=submit_s, stop_s=stop_s)


def _draw_fleet(rng: random.Random, world: WorldPlan) -> None:
    fleet = world.fleet
    fleet.preempted_an_hour = _harsh(rng, (0.2, 1.0, 4.0), odds=0.5)
    fleet.notice = rng.choice((0.0, 0.5, 1.0))
    fleet.notice_s = rng.choice((15.0, 30.0, 120.0))
    fleet.slow_boot = _harsh(rng, (0.1, 0.5))
    fleet.dud = _harsh(rng, (0.05, 0.5))
    fleet.stillborn = _harsh(rng, (0.1, 0.5))
    fleet.paused_an_hour = _harsh(rng, (0.3, 2.0))
    fleet.pause_s = rng.choice((120.0, 1800.0))
    fleet.stale_s = _harsh(rng, (10.0, 60.0, 600.0))
    fleet.remembered_s = rng.choice((60.0, HOUR))
    fleet.skew_s = _harsh(rng, (5.0, 120.0))
    fleet.jumps_an_hour = _harsh(rng, (0.5, 4.0))
    fleet.jump_s = rng.choice((60.0, HOUR, 24 * HOUR))
    if rng.random() < 0.3:
        fleet.stockouts = _windows(rng, world.calm_s, 1800.0)


def _draw_luck(rng: random.Random, world: WorldPlan) -> None:
    for luck in world.luck.values():
        luck.wire_s = rng.choice((0.05, 0.05, 0.5, 5.0))
        luck.late = _harsh(rng, (0.01, 0.2))
        luck.late_s = rng.choice((5.0, 120.0, 900.0))
        luck.lost = _harsh(rng, (0.01, 0.2))
        luck.reply_lost = _harsh(rng, (0.01, 0.1))
        luck.error = _harsh(rng, (0.01, 0.3))
        luck.error_after = _harsh(rng, (0.01, 0.1))
        luck.caller_dies = _harsh(rng, (0.0005, 0.005))
        if rng.random() < 0.2:
            luck.outages = _windows(rng, world.calm_s, 3600.0)
    # What a fleet was asked for may come long after, or twice.
    world.luck["fleet"].ghost = _harsh(rng, (0.05, 0.4))
    world.luck["fleet"].twice = _harsh(rng, (0.05, 0.4))
    _draw_late_writes(rng, world.luck["store"])
    world.luck["database"].conflict = _harsh(rng, (0.02, 0.2))


def _draw_late_writes(rng: random.Random, store: Luck) -> None:
    """What was written to a store may be written again, or long after its writer gave up; a request signed more than a quarter of
    an hour ago is refused."""
    store.ghost, store.ghost_s = _harsh(rng, (0.02, 0.2)), 900.0 - store.patience_s
    store.twice, store.twice_s = _harsh(rng, (0.02, 0.2)), rng.choice((5.0, 120.0, 900.0))


def _draw_cuts(rng: random.Random, world: WorldPlan) -> None:
    if rng.random() < 0.6:
        return
    pairs = (
        ("control:*", "store"),
        ("control:*", "database"),
        ("control:*", "fleet"),
        ("machine:*", "store"),
        ("user:*", "*"),
    )
    singles = (("control:0", "store"), ("control:1", "database"), ("control:0", "fleet"))
    for _ in range(rng.randint(1, 4)):
        one, other = rng.choice(pairs + singles)
        if one == "machine:*" and rng.random() < 0.7:
            one = f"machine:{rng.choice(world.jobs).job_id}-*"
        for_s = rng.choice((60.0, 600.0, 3600.0, 10800.0)) * rng.uniform(0.5, 1.5)
        world.cuts.append(Cut(at_s=rng.uniform(0, world.calm_s), one=one, other=other, for_s=for_s))


def _draw_control(rng: random.Random, world: WorldPlan) -> None:
    world.crashes_an_hour = _harsh(rng, (0.5, 4.0, 30.0))
    world.restart_s = rng.choice((1.0, 60.0, 1800.0))
    world.stalls_an_hour = _harsh(rng, (0.5, 4.0))
    world.control_skew_s = _harsh(rng, (1.0, 60.0))
    world.jump_s = _harsh(rng, (30.0, 3600.0))
    if rng.random() < 0.05:
        world.dead_from_s = rng.uniform(0, world.calm_s)


def _fitting(world: WorldPlan) -> WorldPlan:
    """A job that no fleet of this size can hold would be refused; it asks for less."""
    for index, job in enumerate(world.jobs):
        if job.spec.resources.nodes > world.fleet.machines:
            resources = replace(job.spec.resources, nodes=world.fleet.machines)
            world.jobs[index] = replace(job, spec=replace(job.spec, resources=resources))
    return world


def _harsh(rng: random.Random, values: Sequence[float], odds: float = 0.3) -> float:
    """Absent in most worlds."""
    return rng.choice(values) if rng.random() < odds else 0.0


def _windows(rng: random.Random, until_s: float, length_s: float) -> tuple[tuple[float, float], ...]:
    begins = [rng.uniform(0, until_s) for _ in range(rng.randint(1, 3))]
    return tuple((begin, begin + rng.random() * length_s) for begin in begins)
