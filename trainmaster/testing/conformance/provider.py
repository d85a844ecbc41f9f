"""Does a provider keep the promises of ports/provider.py? One suite for every adapter.

A test module subclasses `ProviderConformance` and gives the fixture `stage`: how to open the provider again, as another process
would; requests whose runners stay or end by themselves; what really exists, asked of somebody else than the provider; and how time
passes, so that machines may be processes, or live in virtual time on an event loop of their own.
"""

# ruff: noqa: D102 – a test's name is its sentence.
from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import pytest

from trainmaster.core.facts import Seen, Sighting
from trainmaster.core.job import AllocationName
from trainmaster.ports.provider import LaunchRequest, Provider

_T = TypeVar("_T")
#: So many moments, and what should have happened has not.
_LOOKS_MAX = 1000
_UNKNOWN = AllocationName("nobody-a1")


class ProviderStage(Protocol):
    """What a test module gives."""

    def open_provider(self) -> Provider:
        """The same machines, seen by another process."""
        ...

    def a_request(self, job: str, attempt: int = 1) -> LaunchRequest:
        """A runner that stays until it is ended. The job's id ends with `job`; what comes before is the stage's, so that two stages
        on one machine are strangers."""
        ...

    def a_brief_request(self, job: str) -> LaunchRequest:
        """A runner that ends by itself, soon."""
        ...

    def machines(self, name: str) -> list[str]:
        """What exists under a name right now, by its own identity; the truth, not what the provider says."""
        ...

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """To its end."""
        ...

    async def a_moment(self) -> None:
        """Let a little time pass."""
        ...


_AsyncTest = Callable[[Any, ProviderStage, Provider], Coroutine[Any, Any, None]]


def on_stage(test: _AsyncTest) -> Callable[[Any, ProviderStage, Provider], None]:
    """A plain test out of an async one, on the loop the machines live on."""

    @functools.wraps(test)
    def plain(self: Any, stage: ProviderStage, provider: Provider) -> None:
        stage.run(test(self, stage, provider))

    return plain


async def eventually(stage: ProviderStage, what: str, look: Callable[[], Awaitable[_T]], is_so: Callable[[_T], bool]) -> _T:
    """Look until it is so; if it never is, tell what was seen instead."""
    seen: list[_T] = []
    for _ in range(_LOOKS_MAX):
        found = await look()
        if is_so(found):
            return found
        if not seen or seen[-1] != found:
            seen.append(found)
        await stage.a_moment()
    pytest.fail(f"not so after {_LOOKS_MAX} looks: {what}\nseen, in order: " + "\n  ".join(map(repr, seen[-20:])))


async def until_gone(stage: ProviderStage, provider: Provider, name: AllocationName) -> Sighting:
    """Wait for GONE. Whenever it is said, it is true."""

    async def look() -> tuple[Sighting, list[str]]:
        sighting = await provider.inspect(name)
        return sighting, stage.machines(name) if sighting.seen is Seen.GONE else []

    sighting, left = await eventually(stage, f"{name} is gone", look, lambda pair: pair[0].seen is Seen.GONE)
    assert left == [], f"gone, it says ({sighting.evidence}), but {left} exist"
    return sighting


async def launched(stage: ProviderStage, provider: Provider, job: str = "j1", attempt: int = 1) -> tuple[LaunchRequest, list[str]]:
    """Launch, and wait until the machine is really there; the request and the machine."""
    request = stage.a_request(job, attempt)
    await provider.launch(request)

    async def look() -> list[str]:
        return stage.machines(request.name)

    return request, await eventually(stage, f"{request.name} exists", look, bool)


class ProviderConformance:
    """Every promise, one test each."""

    @pytest.fixture
    def provider(self, stage: ProviderStage) -> Provider:
        """The provider under test, holding nothing."""
        return stage.open_provider()

    @on_stage
    async def test_it_says_what_it_is(self, stage: ProviderStage, provider: Provider) -> None:
        assert provider.name == provider.name.lower() != ""
        assert isinstance(provider.capabilities, frozenset)
        assert isinstance(provider.features, frozenset)
        capacity = await provider.capacity()
        assert capacity.cpus > 0
        assert await provider.capacity() == capacity == await stage.open_provider().capacity()

    # Promise 1: same name, same machine.

    @on_stage
    async def test_a_launched_machine_is_there(self, stage: ProviderStage, provider: Provider) -> None:
        request, _ = await launched(stage, provider)

        async def look() -> Sighting:
            return await provider.inspect(request.name)

        sighting = await eventually(stage, "it is present", look, lambda seen: seen.seen is Seen.PRESENT)
        assert sighting.was_launched
        assert sighting.evidence, "people are told what the answer rests on"
        assert await provider.allocations() == [request.name]

    @on_stage
    async def test_launching_twice_makes_one_machine(self, stage: ProviderStage, provider: Provider) -> None:
        request, machine = await launched(stage, provider)
        await provider.launch(request)
        await stage.open_provider().launch(request)
        await stage.a_moment()
        assert stage.machines(request.name) == machine
        assert len(machine) == 1
        assert await provider.allocations() == [request.name]

    @on_stage
    async def test_two_who_launch_at_once_make_one_machine(self, stage: ProviderStage, provider: Provider) -> None:
        request = stage.a_request("j1")
        await asyncio.gather(*(opened.launch(request) for opened in (provider, stage.open_provider(), stage.open_provider())))
        _, machine = await launched(stage, provider)
        assert len(machine) == 1
        assert await provider.allocations() == [request.name]

    # Promise 2: GONE only from who knows; an answer, never an exception.

    @on_stage
    async def test_an_unknown_name_is_no_error(self, stage: ProviderStage, provider: Provider) -> None:
        for name in (_UNKNOWN, AllocationName("never-a99"), AllocationName("x" * 60 + "-a1")):
            sighting = await provider.inspect(name)
            assert sighting.seen is not Seen.PRESENT
            assert not sighting.was_launched
            assert stage.machines(name) == []
        assert await provider.allocations() == []

    @on_stage
    async def test_what_was_not_released_stays(self, stage: ProviderStage, provider: Provider) -> None:
        request, machine = await launched(stage, provider)
        for _ in range(20):
            assert (await provider.inspect(request.name)).seen is not Seen.GONE
            await stage.a_moment()
        assert stage.machines(request.name) == machine

    @on_stage
    async def test_a_machine_whose_runner_ended_goes_by_itself(self, stage: ProviderStage, provider: Provider) -> None:
        request = stage.a_brief_request("j1")
        await provider.launch(request)
        sighting = await until_gone(stage, provider, request.name)
        assert sighting.was_launched, "gone, not never there"
        assert sighting.evidence
        await provider.release(request.name)
        assert request.name not in await provider.allocations()

    # Promise 3: released when it is seen to be gone, and not before.

    @on_stage
    async def test_a_released_machine_goes(self, stage: ProviderStage, provider: Provider) -> None:
        request, _ = await launched(stage, provider)
        await provider.release(request.name)
        await until_gone(stage, provider, request.name)
        assert await provider.allocations() == []

    @on_stage
    async def test_a_machine_released_while_it_boots_never_comes(self, stage: ProviderStage, provider: Provider) -> None:
        request = stage.a_request("j1")
        await provider.launch(request)
        await provider.release(request.name)
        await until_gone(stage, provider, request.name)
        for _ in range(20):
            await stage.a_moment()
            assert stage.machines(request.name) == []
        assert await provider.allocations() == []

    @on_stage
    async def test_releasing_again_is_fine(self, stage: ProviderStage, provider: Provider) -> None:
        request, _ = await launched(stage, provider)
        for _ in range(3):
            await provider.release(request.name)
        await until_gone(stage, provider, request.name)
        await provider.release(request.name)
        assert (await provider.inspect(request.name)).seen is not Seen.PRESENT
        assert stage.machines(request.name) == []

    @on_stage
    async def test_releasing_what_is_not_there_is_fine(self, stage: ProviderStage, provider: Provider) -> None:
        for _ in range(2):
            await provider.release(_UNKNOWN)
        assert (await provider.inspect(_UNKNOWN)).seen is not Seen.PRESENT
        assert stage.machines(_UNKNOWN) == []
        assert await provider.allocations() == []

    @on_stage
    async def test_a_release_is_nobody_elses(self, stage: ProviderStage, provider: Provider) -> None:
        """Names that begin alike are different names."""
        first, _ = await launched(stage, provider)
        second, machine = await launched(stage, provider, attempt=11)
        await provider.release(first.name)
        await until_gone(stage, provider, first.name)
        assert stage.machines(second.name) == machine
        assert (await provider.inspect(second.name)).seen is Seen.PRESENT
        assert await provider.allocations() == [second.name]

    # Promise 4: everything it holds, whoever asked for it.

    @on_stage
    async def test_another_process_sees_and_releases_what_was_launched(self, stage: ProviderStage, provider: Provider) -> None:
        names = [(await launched(stage, provider, job, attempt))[0].name for job, attempt in (("j2", 1), ("j1", 2), ("j10", 1))]
        other = stage.open_provider()
        assert await other.allocations() == sorted(names), "in order of name"
        for name in await other.allocations():
            assert (await other.inspect(name)).was_launched
            await other.release(name)
        for name in sorted(names):
            await until_gone(stage, provider, name)
        assert await provider.allocations() == []

    # Hints are only hints.

    @on_stage
    async def test_a_nudge_harms_nobody(self, stage: ProviderStage, provider: Provider) -> None:
        """Also one that comes before the runner listens."""
        await provider.nudge(_UNKNOWN)
        request = stage.a_request("j1")
        await provider.launch(request)
        machine: list[str] = []
        for _ in range(30):
            await provider.nudge(request.name)
            await stage.a_moment()
            machine = machine or stage.machines(request.name)
        assert len(machine) == 1
        assert stage.machines(request.name) == machine
        assert (await provider.inspect(request.name)).seen is Seen.PRESENT
        await provider.release(request.name)
        await until_gone(stage, provider, request.name)
        await provider.nudge(request.name)

    @on_stage
    async def test_waiting_for_a_change_can_be_given_up(self, stage: ProviderStage, provider: Provider) -> None:
        request, machine = await launched(stage, provider)
        for name in (_UNKNOWN, request.name):
            waiting = asyncio.ensure_future(provider.wait_change(name))
            await stage.a_moment()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert waiting.cancelled() or waiting.exception() is None
        assert stage.machines(request.name) == machine

    @on_stage
    async def test_whoever_waits_for_a_change_is_not_hurt_by_the_end(self, stage: ProviderStage, provider: Provider) -> None:
        request, _ = await launched(stage, provider)
        waiting = [asyncio.ensure_future(provider.wait_change(request.name)) for _ in range(3)]
        await provider.release(request.name)
        await until_gone(stage, provider, request.name)
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [error for error in ended if error is not None and not isinstance(error, asyncio.CancelledError)] == []
