"""How do we say it to a simulated fleet, and what do its answers mean? Pure; the words are those of a cloud."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from trainmaster.core.facts import Seen, Sighting
from trainmaster.errors import NoCapacity, ProviderError, ProviderRejected, ProviderUnavailable

#: Optional fields of a spec this provider serves.
FEATURES: frozenset[str] = frozenset({"resources.nodes", "market.spot"})


class MachineState(StrEnum):
    """What a fleet says about the machines of one name."""

    BOOTING = "booting"
    RUNNING = "running"
    ENDING = "ending"
    #: remembered for a while after it went
    ENDED = "ended"


class MachineView(Struct, frozen=True, kw_only=True):
    """A fleet's answer about one name."""

    state: MachineState
    #: why it ended or is about to, in the fleet's words
    why: str = ""
    #: the fleet wanted it back
    preempted: bool = False


class FleetTrouble(StrEnum):
    """A fleet's error codes."""

    STOCKOUT = "stockout"
    QUOTA = "quota"
    BAD_REQUEST = "bad_request"
    INTERNAL = "internal"
    TIMEOUT = "timeout"


class FleetError(Exception):
    """A fleet's answer that is none."""

    def __init__(self, code: FleetTrouble, words: str = "") -> None:
        super().__init__(f"{code.value}: {words}" if words else code.value)
        self.code = code


def sighting(view: MachineView | None) -> Sighting:
    """A fleet that says "ended" knows. "Not found" may be an answer from before the machine was made, so it is no knowledge."""
    if view is None:
        return Sighting(seen=Seen.UNKNOWN, evidence="the fleet finds no such machine", not_found=True)
    preempted = view.why if view.preempted else ""
    if view.state is MachineState.ENDED:
        return Sighting(seen=Seen.GONE, evidence=view.why or "the machine has ended", was_launched=True, preempted=preempted)
    evidence = f"the machine is {view.state.value}{': ' if view.why else ''}{view.why}"
    return Sighting(seen=Seen.PRESENT, evidence=evidence, was_launched=True, preempted=preempted)


def trouble(error: FleetError) -> ProviderError:
    """A fleet's error as one of ours."""
    if error.code in {FleetTrouble.STOCKOUT, FleetTrouble.QUOTA}:
        return NoCapacity(f"the fleet has no machine free ({error.code.value})")
    if error.code is FleetTrouble.BAD_REQUEST:
        return ProviderRejected(f"the fleet refuses: {error}")
    return ProviderUnavailable(f"the fleet gave no answer ({error})")
