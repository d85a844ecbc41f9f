"""What does a machine of the laptop fleet do from power-on to power-off? It boots, starts its runner, is taken back in its time.

One process, one folder; started by `client.py` as `python -m trainmaster.adapters.providers.simulated.machine <folder> <lock>`. The
lock is its sign of life. Everything it runs carries its allocation's mark and ends with it. SIGUSR2 brings its fate forward: it is
taken back now.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from trainmaster.adapters import host, process_folder
from trainmaster.adapters.providers.simulated.fate import Fate, in_words, is_preempted, life_s
from trainmaster.adapters.providers.simulated.translate import MachineState, MachineView

_TICK_S = 0.1


class LaptopMachine:
    """One life."""

    def __init__(self, place: Path, fate: Fate) -> None:
        self._place, self._fate = place, fate
        self._is_wanted_back = False
        signal.signal(signal.SIGUSR2, lambda *_: self._want_back())

    def live(self) -> None:
        """From power-on to power-off."""
        self._tell(MachineView(state=MachineState.BOOTING))
        self._rest(self._fate.boot_s)
        if self._is_wanted_back:
            self._end(None, MachineView(state=MachineState.ENDING, why=in_words(self._fate, None), preempted=True))
            return
        runner = self._start_runner()
        booted_s = host.elapsed_s()
        self._tell(MachineView(state=MachineState.RUNNING))
        self._rest(life_s(self._fate), runner)
        farewell = self._farewell(runner, host.elapsed_s() - booted_s)
        if farewell.preempted and self._fate.notice_s > 0:
            self._tell(farewell)
            runner.terminate()
            self._is_wanted_back = False  # once is enough: the notice is kept
            self._rest(self._fate.notice_s, runner)
        self._end(runner, farewell)

    def _want_back(self) -> None:
        self._is_wanted_back = True

    def _farewell(self, runner: subprocess.Popen[bytes], lived_s: float) -> MachineView:
        """Why it goes."""
        if runner.poll() is not None:
            return MachineView(state=MachineState.ENDING, why="its runner ended, and it switched itself off")
        if not self._is_wanted_back and not is_preempted(self._fate):
            return MachineView(state=MachineState.ENDING, why="its time was up, and it switched itself off")
        return MachineView(state=MachineState.ENDING, why=in_words(self._fate, lived_s), preempted=True)

    def _rest(self, seconds: float, runner: subprocess.Popen[bytes] | None = None) -> None:
        """Until the time is over, the runner has ended, or the machine is wanted back."""
        until_s = host.elapsed_s() + seconds
        while not self._is_wanted_back and (runner is None or runner.poll() is None):
            left_s = until_s - host.elapsed_s()
            if left_s <= 0:
                return
            time.sleep(min(_TICK_S, left_s))

    def _start_runner(self) -> subprocess.Popen[bytes]:
        """As on a real machine: it gets the folder and a lock of its own, and dies with us."""
        lock = host.try_lock(self._place / "runner.lock", create=True)
        assert lock is not None, "one machine, one runner"
        with open(self._place / "runner.log", "ab") as log:
            runner = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainmaster.runner", str(self._place), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                cwd="/",
                preexec_fn=host.die_with_parent,  # noqa: PLW1509  we have one thread; it is one system call
            )
        os.close(lock)
        process_folder.write_process(self._place / "runner.json", runner.pid)
        return runner

    def _end(self, runner: subprocess.Popen[bytes] | None, farewell: MachineView) -> None:
        """Power off: nothing that ran here goes on."""
        self._tell(farewell)
        cgroup = process_folder.cgroup_of(self._place)
        while True:
            if runner is not None and runner.poll() is None:
                runner.kill()
            group_is_gone = cgroup is None or host.end_cgroup(cgroup)
            left = {*host.descendants(os.getpid()), *process_folder.processes_of(self._place)} - {os.getpid()}
            if group_is_gone and not left:
                break
            host.kill_all(sorted(left), signal.SIGKILL)
            process_folder.pause()
        self._tell(msgspec.structs.replace(farewell, state=MachineState.ENDED))
        (self._place / "clean").touch()

    def _tell(self, view: MachineView) -> None:
        process_folder.write_whole(self._place / "view.json", msgspec.json.encode(view))


def main() -> None:
    """Entry point."""
    place = Path(sys.argv[1])
    os.set_inheritable(int(sys.argv[2]), False)  # noqa: FBT003
    if (place / "process.json").exists():
        return  # the name had its machine already
    host.adopt_orphans()
    machine = LaptopMachine(place, msgspec.json.decode((place / "fate.json").read_bytes(), type=Fate))
    process_folder.write_process(place / "process.json", os.getpid())
    machine.live()


if __name__ == "__main__":
    main()
