"""When does a machine of the laptop fleet come, and when is it taken back? Pure; drawn from its name: one name, one fate."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from trainmaster.ports.provider import LaunchRequest

#: No fate lies further ahead than this; 2 to the power of an attempt grows fast.
_DOUBLINGS_MAX = 16


class FleetSettings(Struct, frozen=True, kw_only=True):
    """What the configuration says about the laptop fleet."""

    machines: int = 4
    boot_s: float = 2.0
    #: life of a job's first machine, about; each later one lives twice as long. 0: none is ever taken back
    preempt_s: float = 20.0
    #: between the notice and the end. 0: there is no notice
    notice_s: float = 5.0


class Fate(Struct, frozen=True, kw_only=True):
    """fate.json: what happens to one machine."""

    boot_s: float
    #: taken back so long after it booted; None: never
    preempt_s: float | None
    notice_s: float
    #: ends itself so long after it was switched on
    time_s_max: float


def draw_fate(request: LaunchRequest, settings: FleetSettings) -> Fate:
    """Machines of early attempts are taken back early, those of later ones later: everybody sees it once, and every job ends."""
    doubled = 2.0 ** min(request.attempt - 1, _DOUBLINGS_MAX)
    preempt_s = settings.preempt_s * doubled * _between(0.9, 1.1, f"life of {request.name}")
    return Fate(
        boot_s=settings.boot_s * _between(0.8, 1.2, f"boot of {request.name}"),
        preempt_s=preempt_s if settings.preempt_s > 0 else None,
        notice_s=settings.notice_s,
        time_s_max=request.machine_s_max,
    )


def life_s(fate: Fate) -> float:
    """From its boot to its notice or end, if its runner does not end before."""
    rest_s = max(0.0, fate.time_s_max - fate.boot_s)
    return rest_s if fate.preempt_s is None else min(fate.preempt_s, rest_s)


def is_preempted(fate: Fate) -> bool:
    """Whether it is taken back before its time is up."""
    return fate.preempt_s is not None and fate.preempt_s <= life_s(fate)


def in_words(fate: Fate, lived_s: float | None) -> str:
    """Why a machine was taken back, for people; `lived_s` since it booted, None: it had not."""
    notice = f"with {fate.notice_s:g} s of notice" if fate.notice_s > 0 else "without notice"
    if lived_s is None:
        return "preempted by the fleet while it booted"
    return f"preempted by the fleet {lived_s:.0f} s after it booted, {notice}"


def _between(low: float, high: float, text: str) -> float:
    """Chance that is none: the same for the same text."""
    share = int.from_bytes(sha256(text.encode()).digest()[:8], "big") / 2**64
    return low + (high - low) * share
