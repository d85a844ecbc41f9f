"""Does every store keep the promises of the port, and do their errors say what the caller may do next?"""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from msgspec import field

from trainmaster.adapters.object_store import AsyncDoor, open_store
from trainmaster.testing.conformance.object_store import Address, ObjectStoreConformance
from trainmaster.testing.sim_net import Luck, Net, Party
from trainmaster.testing.sim_store import Objects, StoreDoor
from trainmaster.testing.virtual_loop import run_virtual

numbers = itertools.count()


class TestFolder(ObjectStoreConformance):
    @pytest.fixture
    def address(self, tmp_path_factory):
        return Address(str(tmp_path_factory.mktemp("stores") / "store"))


class TestMemory(ObjectStoreConformance):
    @pytest.fixture
    def address(self):
        return Address(f"memory://{next(numbers)}", is_shared=False)


class TestS3(ObjectStoreConformance):
    @pytest.fixture
    def address(self, server):
        return Address(f"{server.url}/a prefix/{next(numbers)}", server.options, races=1)


class SimulatedAddress(Address, frozen=True):
    """The store of a simulated world: it has no address, only itself."""

    objects: Objects = field(default_factory=Objects)

    def open(self):
        return self.objects


class TestSimulated(ObjectStoreConformance):
    """The one that simulated worlds use."""

    @pytest.fixture
    def address(self):
        return SimulatedAddress("simulated://store", is_shared=False)

    def test_the_address_leads_back_to_the_same_objects(self, store, address):
        """There is no address outside its world; whoever is in it finds the same objects."""
        store.put("k", b"v")
        assert address.open().get("k") == b"v"


def test_a_simulated_party_reaches_the_same_store():
    async def use(loop):
        net = Net(loop, random.Random(1))
        net.luck["store"] = Luck()
        one, other = (StoreDoor(Party(name, loop), net, objects) for name in ("one", "other"))
        won = await asyncio.gather(one.put_if_absent("a/claim", b"1"), other.put_if_absent("a/claim", b"2"))
        assert won.count(True) == 1
        assert await one.get("a/claim") == await other.get("a/claim") == (b"1" if won[0] else b"2")
        await one.put("a/b", b"33")
        assert [(entry.key, entry.size_bytes) for entry in await other.list_keys("a")] == [("a/b", 2), ("a/claim", 1)]
        assert [entry.key for entry in await other.list_keys("a", after="a/b")] == ["a/claim"]
        assert await other.delete_prefix("a") == 2
        assert await one.get("a/b") is None

    objects = Objects()
    run_virtual(use, random.Random(1))
    assert objects.values == {}


@pytest.fixture(params=["folder", "memory", "s3"])
def door(request, tmp_path):
    if request.param == "s3":
        server = request.getfixturevalue("server")
        return AsyncDoor(open_store(f"{server.url}/door/{next(numbers)}", options=server.options))
    return AsyncDoor(open_store(str(tmp_path / "store") if request.param == "folder" else f"memory://{next(numbers)}"))


def test_the_async_door_leads_to_the_same_store(door):
    async def use():
        assert await door.get("a/b") is None
        await door.put("a/b", b"1")
        assert await door.get("a/b") == b"1"
        assert not await door.put_if_absent("a/b", b"2")
        assert await door.put_if_absent("a/c", b"33")
        assert [(entry.key, entry.size_bytes) for entry in await door.list_keys("a")] == [("a/b", 1), ("a/c", 2)]
        assert [entry.key for entry in await door.list_keys("a", after="a/b")] == ["a/c"]
        assert await door.delete_prefix("a") == 2
        assert await door.list_keys("a") == []

    asyncio.run(use())


def test_of_racing_tasks_one_wins(door):
    async def race():
        return await asyncio.gather(*(door.put_if_absent("claim", b"%d" % racer) for racer in range(16)))

    assert asyncio.run(race()).count(True) == 1
