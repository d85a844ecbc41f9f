"""How does an attempt get the environment its job asks for? Found or built, then the set-up commands, all on record."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from trainmaster.adapters import host
from trainmaster.adapters.environments.question import Question
from trainmaster.adapters.environments.shelf import Held, Shelf
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, refuse_full_disk
from trainmaster.adapters.process_folder import write_whole
from trainmaster.adapters.source_changes import file_marks
from trainmaster.core.job import ALLOCATION_MARK, EnvironmentRef
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import LaunchFile
from trainmaster.runner import workplace
from trainmaster.runner.workplace import EnvironmentFailed, Workplace
from trainmaster.spec.environment import is_wanted as is_environment_wanted

_LOG_BYTES_MAX = 4 << 20
_LINES_SHOWN = 5


class SetUpLog:
    """What resolving, installing and the set-up commands said; the end of it, if that is much."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: a tool's words come from a thread of their own
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        """Add to it."""
        with self._lock:
            with open(self._path, "ab") as file:
                file.write(text.encode(errors="replace"))
                size_bytes = file.tell()
            if size_bytes > 2 * _LOG_BYTES_MAX:
                write_whole(self._path, self._end())

    def read(self) -> bytes:
        """All of it, for the store; empty when nothing had to be done."""
        with self._lock:
            return self._end()

    def _end(self) -> bytes:
        """As many of the last lines as may be kept."""
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, os.SEEK_END) <= _LOG_BYTES_MAX:
                    file.seek(0)
                    return file.read()
                file.seek(-_LOG_BYTES_MAX, os.SEEK_END)
                file.readline()
                return file.read()
        except FileNotFoundError:
            return b""


class EnvironmentSetUp:
    """Environment and set-up commands of one attempt."""

    def __init__(
        self,
        place: Workplace,
        launch: LaunchFile,
        store: BlockingStore,
        tell: Callable[[str], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._place, self._launch, self._store, self._tell, self._is_wanted = place, launch, store, tell, is_wanted
        self._base = workplace.submission_environment(Path(launch.environ_file) if launch.environ_file else None)
        self._base[ALLOCATION_MARK] = launch.request.name
        # A machine that shares nothing builds for this attempt alone.
        self._shared = Path(launch.shared) if launch.shared else place.home.parent / "shared"
        self.log = SetUpLog(place.home.parent / "setup.log")

    def work(self) -> EnvironmentRef | None:
        """Have the environment, run the commands. Repeatable, until it has worked."""
        file = self._place.file
        try:
            ref = self._environment() if is_environment_wanted(file.spec.environment) or file.lock else None
            self._run_commands()
        except EnvironmentTrouble as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise EnvironmentFailed(f"{error.sentence}{hint}") from error
        return ref

    def _environment(self) -> EnvironmentRef:
        began_s = host.elapsed_s()
        question = self._question()
        held = Shelf(self._shared / "envs").find(question.name)
        if held is None or not held.stored_mark(self._store.url).exists():
            held = self._built(question, held)
        self._place.environment = held.folder
        return EnvironmentRef(
            key=held.file.key,
            python=held.file.python,
            platform=held.file.platform,
            packages=held.file.packages,
            seconds=round(host.elapsed_s() - began_s, 3),
            was_there=held.was_there,
        )

    def _question(self) -> Question:
        file = self._place.file
        return Question(
            environment=file.spec.environment,
            folder=self._place.working,
            python=file.origin.python,
            base=self._base,
            code=file.code.sha256 or file.id,
            lock=file.lock,
            wheelhouse=file.wheelhouse,
        )

    def _built(self, question: Question, held: Held | None) -> Held:
        from trainmaster.adapters.environments.builder import Site, keep_lock, provide
        from trainmaster.adapters.environments.tool import Tools

        tools = Tools(self.log.write, question.secrets, self._is_wanted, self._in_child)
        site = Site(shared=self._shared, store=self._store, tools=tools, tell=self._tell)
        held = held or provide(question, site)
        keep_lock(held, site)
        return held

    def _in_child(self) -> None:
        if self._launch.cgroup:
            host.join_cgroup(Path(self._launch.cgroup))
        host.die_with_parent()

    def _run_commands(self) -> None:
        commands = self._place.file.spec.environment.setup
        if not commands:
            return
        from trainmaster.adapters.environments.tool import Tools

        tools = Tools(self.log.write, self._question().secrets, self._is_wanted, self._in_child)
        _, environ = workplace.start_up(self._place, None, self._base)
        for number, line in enumerate(commands, 1):
            self._tell(f"setting up (command {number} of {len(commands)})")
            tools.say(f"$ {line}")
            said = tools.ask(["/bin/sh", "-e", "-c", line], environ, self._place.working, shows_output=True)
            if said.code != 0:
                refuse_full_disk(said.output[-4000:])
                words = " ".join(said.output.strip().splitlines()[-_LINES_SHOWN:])
                ended = f"signal {-said.code}" if said.code < 0 else f"exit code {said.code}"
                raise EnvironmentTrouble(
                    f"environment.setup[{number - 1}], `{line}`, ended with {ended}: {words[-600:]}".rstrip(": ")
                )
        if not self._place.file.code.in_place:
            self._place.before = file_marks(self._place.working)  # what the commands made was not made by the script
