"""How are runner processes started, found and ended on this machine? Folders, locks and signals; nothing is decided here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from trainmaster.adapters import host, process_folder
from trainmaster.adapters.providers.local.translate import FoundRunner
from trainmaster.ports.provider import LaunchFile


class LocalClient:
    """The machines folder: one folder per allocation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, launch: LaunchFile) -> bool:
        """Start a runner, unless one lives under this name; False then."""
        place = self._folder / name
        child = process_folder.start(place, "trainmaster.runner", launch, "runner.log")
        if child is None:
            return False
        self._children.append(child)
        process_folder.write_process(place / "process.json", child.pid)
        return True

    def find(self, name: str) -> FoundRunner:
        """What there is of an allocation."""
        self._reap()
        place = self._folder / name
        process = process_folder.read_process(place / "process.json")
        is_locked = process_folder.is_locked(place)
        is_clean = (place / "clean").exists()
        was_begun = (place / "launch.json").exists()
        leftovers = process_folder.processes_of(place) if was_begun and not is_locked and not is_clean else ()
        state = host.process_state(process.pid) if process is not None and is_locked else ""
        return FoundRunner(
            process=process,
            is_locked=is_locked,
            leftovers=leftovers,
            state=state,
            boot=host.boot_id(),
            host=os.uname().nodename,
            last_words="" if is_locked or is_clean else process_folder.last_words(place / "runner.log"),
        )

    def end(self, name: str) -> bool:
        """End every process of an allocation and remove its folder; False if something would not die."""
        place = self._folder / name
        if not place.exists():
            return True
        if not process_folder.end_all(place, self._reap):
            return False
        shutil.rmtree(place, ignore_errors=True)
        return True

    def nudge(self, name: str) -> None:
        """Let the runner look for orders now."""
        place = self._folder / name
        if process_folder.is_locked(place):
            process_folder.nudge(process_folder.read_process(place / "process.json"))

    def names(self) -> list[str]:
        """Every allocation with a folder."""
        return process_folder.folders(self._folder)

    async def wait_end(self, name: str) -> None:
        """Until the runner ends; may come early."""
        await process_folder.wait_end(self._folder / name / "process.json")

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]
