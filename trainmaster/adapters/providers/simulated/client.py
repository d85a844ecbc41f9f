"""How does a laptop pretend to be a fleet? Each machine is a process of this one, with a folder, a lock and a fate."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmaster.adapters import host, process_folder
from trainmaster.adapters.providers.simulated.fate import FleetSettings, draw_fate
from trainmaster.adapters.providers.simulated.translate import FleetError, FleetTrouble, MachineState, MachineView
from trainmaster.core.job import ALLOCATION_MARK
from trainmaster.core.schedule import Capacity
from trainmaster.ports.provider import INPUTS_BYTES_MAX, LaunchFile, LaunchRequest

#: Optional fields of a spec this fleet serves; a job has one machine.
FEATURES: frozenset[str] = process_folder.RUNNER_FEATURES | {"market.spot"}
#: How many machines are remembered after they were given back.
_REMEMBERED_MAX = 200


class LaptopFleet:
    """A folder of machines, and a folder of what is remembered of those that were given back."""

    def __init__(
        self, folder: Path, environments: Path, settings: FleetSettings, *, inputs_bytes_max: int = INPUTS_BYTES_MAX
    ) -> None:
        self._machines, self._memory = folder / "machines", folder / "ended"
        self._environments = environments
        self._settings = settings
        self._inputs_bytes_max = inputs_bytes_max
        self._children: list[subprocess.Popen[bytes]] = []

    async def size(self) -> Capacity:
        """One CPU for each machine; memory is this computer's, and there is no GPU."""
        return Capacity(cpus=self._settings.machines, memory=host.memory_bytes(), machine_cpus=1)

    async def create(self, request: LaunchRequest) -> None:
        """Switch a machine on. A name that was ever given is left alone: a machine that ended does not come back."""
        place = self._machines / request.name
        if (place / "launch.json").exists() or (self._memory / request.name).exists():
            return
        try:
            held = sum(process_folder.is_locked(self._machines / name) for name in process_folder.folders(self._machines))
            if held >= self._settings.machines:
                raise FleetError(FleetTrouble.STOCKOUT, f"all {held} machines are taken")
            self._switch_on(place, request)
        except BlockingIOError as error:
            raise FleetError(FleetTrouble.STOCKOUT, str(error)) from error
        except OSError as error:
            raise FleetError(FleetTrouble.INTERNAL, str(error)) from error

    def _switch_on(self, place: Path, request: LaunchRequest) -> None:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        fate = draw_fate(request, self._settings)
        process_folder.write_whole(place / "fate.json", msgspec.json.encode(fate))
        launch = LaunchFile(
            request=request,
            environ_file=str(self._environments / f"{request.environment_name}.json"),
            shared=str(self._environments.parent),
            inputs_bytes_max=self._inputs_bytes_max,
            cgroup=str(host.make_cgroup(request.name) or ""),
        )
        program = "trainmaster.adapters.providers.simulated.machine"
        child = process_folder.start(place, program, launch, "machine.log", {ALLOCATION_MARK: request.name})
        if child is not None:
            self._children.append(child)

    async def describe(self, name: str) -> MachineView | None:
        """What its lock and its own words say. What ran on a machine that is gone is ended here: its power is off."""
        self._reap()
        try:
            remembered = _view(self._memory / name)
            return remembered if remembered is not None else self._look(self._machines / name)
        except OSError as error:
            raise FleetError(FleetTrouble.INTERNAL, f"cannot look: {error}") from error

    def _look(self, place: Path) -> MachineView | None:
        process = process_folder.read_process(place / "process.json")
        if process is not None and process.host != os.uname().nodename:
            raise FleetError(FleetTrouble.TIMEOUT, f"the machine is a process of {process.host}")
        # The lock first: a machine's last words are written before it lets go.
        is_on = process_folder.is_locked(place)
        view = _view(place / "view.json")
        if is_on:
            view = view or MachineView(state=MachineState.BOOTING)
            return replace(view, state=MachineState.ENDING) if view.state is MachineState.ENDED else view
        if not (place / "launch.json").exists():
            return None
        if not (place / "clean").exists():
            left = process_folder.processes_of(place)
            host.kill_all(left, signal.SIGKILL)
            if left:
                return replace(view or MachineView(state=MachineState.ENDING), state=MachineState.ENDING)
        if view is not None and view.why:
            return replace(view, state=MachineState.ENDED)
        is_restarted = process is not None and process.boot != host.boot_id()
        said = process_folder.last_words(place / "machine.log")
        why = "this computer was restarted" if is_restarted else "the machine vanished; nobody had asked for it"
        return MachineView(state=MachineState.ENDED, why=f"{why}; it said: {said}" if said else why)

    async def delete(self, name: str) -> None:
        """Switch a machine off, with everything on it, and remember why it went."""
        await asyncio.to_thread(self._switch_off, name)

    def _switch_off(self, name: str) -> None:
        place = self._machines / name
        if not place.exists():
            return
        try:
            if not process_folder.end_all(place, self._reap):
                raise FleetError(FleetTrouble.INTERNAL, f"some process of {name} does not die")
            if (place / "launch.json").exists():
                self._remember(place)
            shutil.rmtree(place, ignore_errors=True)
        except OSError as error:
            raise FleetError(FleetTrouble.INTERNAL, str(error)) from error

    def _remember(self, place: Path) -> None:
        """Its last words, or that it was given back; the oldest memories go."""
        view = _view(place / "view.json")
        if view is None or not view.why:
            view = MachineView(state=MachineState.ENDED, why="the machine was given back")
        self._memory.mkdir(exist_ok=True, mode=0o700)
        process_folder.write_whole(self._memory / place.name, msgspec.json.encode(replace(view, state=MachineState.ENDED)))
        memories = sorted(self._memory.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
        for file in memories[_REMEMBERED_MAX:]:
            file.unlink(missing_ok=True)

    async def names(self) -> list[str]:
        """Every machine that was not given back."""
        try:
            return process_folder.folders(self._machines)
        except OSError as error:
            raise FleetError(FleetTrouble.INTERNAL, f"cannot look: {error}") from error

    async def nudge(self, name: str) -> None:
        """Wake its runner."""
        if process_folder.is_locked(self._machines / name):
            process_folder.nudge(process_folder.read_process(self._machines / name / "runner.json"))

    async def wait_change(self, name: str) -> None:
        """Until its process ends; may come early."""
        await process_folder.wait_end(self._machines / name / "process.json")

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]


def _view(path: Path) -> MachineView | None:
    """What a machine said about itself, or what is remembered of it; None where nothing is."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=MachineView)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
