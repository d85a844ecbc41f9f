"""Does every provider keep the promises of the port?"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from trainmaster.adapters import host
from trainmaster.adapters.object_store import open_store
from trainmaster.adapters.providers.local.provider import LocalProvider
from trainmaster.adapters.providers.simulated.client import FEATURES, LaptopFleet
from trainmaster.adapters.providers.simulated.fate import FleetSettings
from trainmaster.adapters.providers.simulated.provider import SimulatedProvider
from trainmaster.core.facts import Seen
from trainmaster.core.job import ALLOCATION_MARK, AllocationName, JobId, allocation_name
from trainmaster.core.messages import ClaimFile, OpenFile
from trainmaster.errors import NoCapacity, ProviderUnavailable
from trainmaster.ports.provider import LaunchRequest
from trainmaster.spec import layout
from trainmaster.testing.builders import a_placement
from trainmaster.testing.conformance.provider import ProviderConformance, launched, until_gone
from trainmaster.testing.sim_fleet import FleetDoor, FleetPlan, VirtualFleet
from trainmaster.testing.sim_net import Luck, Net, Party
from trainmaster.testing.sim_runner import RunnerOrder
from trainmaster.testing.sim_script import Script
from trainmaster.testing.sim_store import Objects
from trainmaster.testing.virtual_loop import VirtualLoop, end_all

pytestmark = pytest.mark.process


class ProcessStage:
    """Machines that are processes of this one; what lives is read from their command lines."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.program = folder, program
        self.away = folder / "a store that is not there"
        self.store = folder / "store"
        self.opened = []
        #: processes are found by their job's id: that of every test is its own
        self.token = secrets.token_hex(4)

    def a_request(self, job, attempt=1):
        """A runner waits for a store that is away."""
        job_id = JobId(f"{self.token}-{job}")
        return LaunchRequest(
            name=allocation_name(job_id, attempt),
            job_id=job_id,
            attempt=attempt,
            placement=a_placement(),
            store_url=str(self.away),
            attempt_lease_s=60.0,
            heartbeat_s=5.0,
        )

    def a_brief_request(self, job):
        """A runner finds its attempt closed, and goes."""
        request = self.a_request(job)
        closed = msgspec.json.encode(ClaimFile(at=datetime.now(UTC)))
        open_store(str(self.store)).put(layout.claim(request.job_id, request.attempt), closed)
        return replace(request, store_url=str(self.store))

    def machines(self, name):
        return [str(pid) for pid in self.processes(name) if self.program.encode() in command_line(pid)]

    def processes(self, name):
        """Everything that was started with the allocation's folder."""
        folder = f"/{name}".encode()
        words = [(pid, command_line(pid)) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))]
        ours = str(self.folder).encode()
        return [pid for pid, line in words if any(word.startswith(ours) and word.endswith(folder) for word in line.split(b"\0"))]

    def run(self, work):
        return asyncio.run(work)

    async def a_moment(self):
        await asyncio.sleep(0.02)

    def open_provider(self):
        self.opened.append(self.another())
        return self.opened[-1]

    def missing_files(self):
        return [name for name in self.files if not list(self.folder.rglob(name))]

    def close(self):
        """Nothing is left; whatever a broken provider leaves is ended here, and told."""
        provider = self.open_provider()
        names = asyncio.run(provider.allocations())
        try:
            for name in names:
                asyncio.run(provider.release(name))
        finally:
            left = [pid for name in names for pid in self.processes(name)]
            host.kill_all(left, signal.SIGKILL)
            for opened in self.opened:
                asyncio.run(opened.inspect(AllocationName("nobody-a1")))  # whoever started a process reaps it when it looks
        assert left == []


class LocalStage(ProcessStage):
    files = ("process.json",)

    def __init__(self, folder):
        super().__init__(folder, "trainmaster.runner")

    def another(self):
        return LocalProvider(self.folder / "machines", self.folder / "environments", None)


class LaptopStage(ProcessStage):
    files = ("process.json", "view.json", "runner.json")

    def __init__(self, folder):
        super().__init__(folder, "simulated.machine")
        self.settings = FleetSettings(boot_s=0.2, preempt_s=0.0)

    def another(self):
        return SimulatedProvider(LaptopFleet(self.folder / "fleet", self.folder / "environments", self.settings), FEATURES)


class VirtualStage:
    """Machines that live in virtual time, on a loop of their own."""

    def __init__(self, _folder):
        self.loop = VirtualLoop(random.Random(1))
        self.net = Net(self.loop, random.Random(2))
        self.net.luck = {"store": Luck(), "fleet": Luck()}
        self.objects = Objects()
        self.fleet = VirtualFleet(self.net, self.objects, FleetPlan(), self.order)

    def order(self, request):
        return RunnerOrder(request=request, script=Script(steps=10**9), keep=1)

    def open_provider(self):
        return SimulatedProvider(FleetDoor(Party("control", self.loop), self.net, self.fleet))

    def a_request(self, job, attempt=1):
        job_id = JobId(f"v-{job}")
        self.objects.put(layout.opened(job_id, attempt), msgspec.json.encode(OpenFile(attempt=attempt)))
        return LaunchRequest(
            name=allocation_name(job_id, attempt),
            job_id=job_id,
            attempt=attempt,
            placement=a_placement(),
            store_url="simulated://store",
            attempt_lease_s=60.0,
            heartbeat_s=5.0,
        )

    def a_brief_request(self, job):
        request = self.a_request(job)
        self.objects.put(layout.claim(request.job_id, request.attempt), msgspec.json.encode(ClaimFile(at=datetime.now(UTC))))
        return request

    def machines(self, name):
        return [str(machine.serial) for machine in self.fleet.held if machine.request.name == name]

    def run(self, work):
        return self.loop.run_until_complete(work)

    async def a_moment(self):
        await asyncio.sleep(5)

    def close(self):
        for machine in self.fleet.held:
            self.fleet.end(machine, "the test is over")
        end_all(self.loop)
        self.loop.close()


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def stage(request, tmp_path):
    made = request.cls.stage_class(tmp_path)
    yield made
    made.close()


class TestVirtual(ProviderConformance):
    """The fleet of simulated worlds."""

    stage_class = VirtualStage


class TestLocal(ProviderConformance):
    stage_class = LocalStage

    def test_a_runner_that_cannot_reach_its_store_gives_up_in_time(self, stage):
        """Nobody pays for a machine that waits for ever, also when there is nobody left to take it back."""

        async def work():
            provider = stage.open_provider()
            request = replace(stage.a_request("j1"), start_s_max=0.5)
            await provider.launch(request)
            await until_gone(stage, provider, request.name)

        stage.run(work())


class TestSimulated(ProviderConformance):
    """The laptop fleet."""

    stage_class = LaptopStage

    def test_a_fleet_that_is_used_up_says_so_and_starts_nothing(self, stage):
        stage.settings = FleetSettings(machines=1, boot_s=0.0, preempt_s=0.0)

        async def work():
            provider = stage.open_provider()
            first, machine = await launched(stage, provider)
            with pytest.raises(NoCapacity):
                await provider.launch(stage.a_request("j2"))
            await provider.launch(first)
            assert stage.machines(first.name) == machine
            assert await provider.allocations() == [first.name]
            await provider.release(first.name)
            await until_gone(stage, provider, first.name)
            await launched(stage, provider, "j2")

        stage.run(work())

    def test_a_preempted_machine_says_why_also_after_it_was_given_back(self, stage):
        stage.settings = FleetSettings(boot_s=0.0, preempt_s=0.1, notice_s=0.2)

        async def work():
            provider = stage.open_provider()
            request, _ = await launched(stage, provider)
            gone = await until_gone(stage, provider, request.name)
            assert gone.preempted.startswith("preempted by the fleet ")
            assert "0.2 s of notice" in gone.preempted
            await provider.release(request.name)
            for opened in (provider, stage.open_provider()):
                assert await opened.inspect(request.name) == gone
                await opened.launch(request)  # late: a name is given once
                assert await opened.allocations() == []

        stage.run(work())

    def test_a_machine_ends_itself_when_its_time_is_up(self, stage):
        stage.settings = FleetSettings(boot_s=0.0, preempt_s=0.0)

        async def work():
            provider = stage.open_provider()
            request = replace(stage.a_request("j1"), machine_s_max=0.3)
            await provider.launch(request)
            gone = await until_gone(stage, provider, request.name)
            assert "its time was up" in gone.evidence
            assert not gone.preempted

        stage.run(work())

    def test_a_machine_that_was_killed_takes_its_runner_along(self, stage):
        stage.settings = FleetSettings(boot_s=0.0, preempt_s=0.0)

        async def work():
            provider = stage.open_provider()
            request, [machine] = await launched(stage, provider)
            while len(stage.processes(request.name)) < 2:
                await stage.a_moment()
            os.kill(int(machine), signal.SIGKILL)
            gone = await until_gone(stage, provider, request.name)
            assert "vanished" in gone.evidence
            assert stage.processes(request.name) == []

        stage.run(work())

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2], ids=["killed", "taken back"])
    def test_what_left_its_job_does_not_outlive_the_machine(self, stage, number):
        stage.settings = FleetSettings(boot_s=0.0, preempt_s=0.0, notice_s=0.0)
        name = stage.a_request("j1").name

        async def work(stray):
            provider = stage.open_provider()
            _, [machine] = await launched(stage, provider)
            while len(stage.processes(name)) < 2:
                await stage.a_moment()
            os.kill(int(machine), number)
            await until_gone(stage, provider, name)
            assert host.process_state(stray.pid) in {"", "Z"}

        with subprocess.Popen(["sleep", "300"], env={**os.environ, ALLOCATION_MARK: name}, start_new_session=True) as stray:
            try:
                stage.run(work(stray))
            finally:
                stray.kill()


@pytest.mark.parametrize("stage_class", [LocalStage, LaptopStage])
@pytest.mark.parametrize("content", [b"", b'{"pid": 1', b"\0" * 64], ids=["empty", "half", "zeros"])
def test_a_file_torn_by_a_power_cut_is_no_exception(stage_class, content, tmp_path):
    stage = stage_class(tmp_path)

    async def work():
        provider = stage.open_provider()
        request, _ = await launched(stage, provider)
        while stage.missing_files():
            await stage.a_moment()
        for name in stage.files:
            [file] = tmp_path.rglob(name)
            file.write_bytes(content)
        await provider.nudge(request.name)
        assert (await provider.inspect(request.name)).seen is Seen.PRESENT
        for pid in stage.processes(request.name):
            os.kill(pid, signal.SIGKILL)
        await until_gone(stage, provider, request.name)
        await provider.release(request.name)

    try:
        stage.run(work())
    finally:
        stage.close()


@pytest.mark.parametrize("stage_class", [LocalStage, LaptopStage])
def test_a_launch_that_fails_leaves_no_control_group(stage_class, tmp_path):
    stage = stage_class(tmp_path)
    (tmp_path / "machines").write_text("a file where a folder should be")
    (tmp_path / "fleet").write_text("a file where a folder should be")
    request = stage.a_request("j1")
    probe = host.make_cgroup(stage.token)
    if probe is not None:
        host.drop_cgroup(probe)
    with pytest.raises(ProviderUnavailable):
        asyncio.run(stage.another().launch(request))
    with pytest.raises(ProviderUnavailable):
        asyncio.run(stage.another().allocations())
    assert probe is None or list(probe.parent.glob(f"trainmaster-{stage.token}*")) == []
