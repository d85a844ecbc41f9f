"""How is a provider known by name before it is opened? Whoever never uses it pays nothing for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from trainmaster.core.facts import Sighting
from trainmaster.core.job import AllocationName
from trainmaster.core.schedule import Capacity
from trainmaster.ports.provider import Capability, LaunchRequest, Provider


class LateProvider:
    """Opens the provider when something is asked of it. While `holds_any` says no, there is nothing to list."""

    def __init__(self, name: str, open_provider: Callable[[], Provider], holds_any: Callable[[], bool]) -> None:
        self._name, self._open, self._holds_any = name, open_provider, holds_any

    @cached_property
    def _provider(self) -> Provider:
        return self._open()

    @property
    def name(self) -> str:
        """The word for it in a spec."""
        return self._name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Its own."""
        return self._provider.capabilities

    @property
    def features(self) -> frozenset[str]:
        """Its own."""
        return self._provider.features

    async def capacity(self) -> Capacity:
        """Its own. Repeatable."""
        return await self._provider.capacity()

    async def launch(self, request: LaunchRequest) -> None:
        """Passed on. Repeatable by name."""
        await self._provider.launch(request)

    async def inspect(self, name: AllocationName) -> Sighting:
        """Passed on. Repeatable."""
        return await self._provider.inspect(name)

    async def nudge(self, name: AllocationName) -> None:
        """Passed on. Repeatable."""
        await self._provider.nudge(name)

    async def release(self, name: AllocationName) -> None:
        """Passed on. Repeatable."""
        await self._provider.release(name)

    async def allocations(self) -> list[AllocationName]:
        """Passed on, where there may be any. Repeatable."""
        return await self._provider.allocations() if self._holds_any() else []

    async def wait_change(self, name: AllocationName) -> None:
        """Passed on."""
        await self._provider.wait_change(name)
