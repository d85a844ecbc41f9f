"""A simulated fleet as a provider: glue between the port, translate and a fleet.

Two fleets exist: `client.py` pretends with processes of this machine, so that a newcomer can watch a preemption; the test kit
has one that lives in virtual time and has every fault we could think of. This glue and `translate.py` are the same for both.
"""

from __future__ import annotations

from typing import Protocol

from trainmaster.adapters.providers.simulated.translate import FEATURES, FleetError, MachineView, sighting, trouble
from trainmaster.core.facts import Seen, Sighting
from trainmaster.core.job import AllocationName
from trainmaster.core.schedule import Capacity
from trainmaster.ports.provider import Capability, LaunchRequest


class Fleet(Protocol):
    """Machines by name. Every method may raise FleetError; after INTERNAL or TIMEOUT it may have happened."""

    async def size(self) -> Capacity:
        """What the fleet can hold at one time."""
        ...

    async def create(self, request: LaunchRequest) -> None:
        """Make the machines of an allocation, all or none; a name that exists is left alone. Repeatable."""
        ...

    async def describe(self, name: str) -> MachineView | None:
        """What is known of a name; None: not found, which may be an old answer. Repeatable."""
        ...

    async def delete(self, name: str) -> None:
        """Begin to end the machines of a name; nothing for an unknown name. Repeatable."""
        ...

    async def names(self) -> list[str]:
        """Every name that is held, in order. Repeatable."""
        ...

    async def nudge(self, name: str) -> None:
        """Let the runner look for orders now; may be lost. Repeatable."""
        ...

    async def wait_change(self, name: str) -> None:
        """Return when something about the name may have changed; may come early or never."""
        ...


class SimulatedProvider:
    """Each allocation is one or more pretended machines, all or nothing."""

    name = "simulated"
    capabilities = frozenset({Capability.CONFIRMS_GONE})

    def __init__(self, fleet: Fleet, features: frozenset[str] = FEATURES) -> None:
        self._fleet = fleet
        self.features = features

    async def capacity(self) -> Capacity:
        """The size of the fleet. Repeatable."""
        try:
            return await self._fleet.size()
        except FleetError as error:
            raise trouble(error) from error

    async def launch(self, request: LaunchRequest) -> None:
        """Make the machines; repeatable by name."""
        try:
            await self._fleet.create(request)
        except FleetError as error:
            raise trouble(error) from error

    async def inspect(self, name: AllocationName) -> Sighting:
        """What the fleet knows; no answer is UNKNOWN. Repeatable."""
        try:
            return sighting(await self._fleet.describe(name))
        except FleetError as error:
            return Sighting(seen=Seen.UNKNOWN, evidence=str(error))

    async def nudge(self, name: AllocationName) -> None:
        """A hint that may be lost. Repeatable."""
        try:
            await self._fleet.nudge(name)
        except FleetError:
            return

    async def release(self, name: AllocationName) -> None:
        """Give the machines back. Repeatable."""
        try:
            await self._fleet.delete(name)
        except FleetError as error:
            raise trouble(error) from error

    async def allocations(self) -> list[AllocationName]:
        """Everything the fleet holds, in order of name. Repeatable."""
        try:
            return [AllocationName(name) for name in await self._fleet.names()]
        except FleetError as error:
            raise trouble(error) from error

    async def wait_change(self, name: AllocationName) -> None:
        """A hint that may come early or never."""
        try:
            await self._fleet.wait_change(name)
        except FleetError:
            return
