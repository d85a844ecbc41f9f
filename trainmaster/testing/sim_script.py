"""What does a training script do in a simulated world? It counts steps, saves every so often, and ends as it was drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from msgspec import Struct

from trainmaster.testing.sim_net import Party

#: exit code of a script that crashed
CRASH = 1


class Script(Struct, frozen=True, kw_only=True):
    """How a script behaves; the same in every attempt."""

    steps: int = 60
    step_s: float = 60.0
    #: steps between two saves; 0: it never saves
    save_every: int = 10
    #: a save is two files, the second this much later
    save_s: float = 3.0
    #: exit code at the end
    code: int = 0
    #: it will crash this many times, at this step counted from where it began
    crashes: int = 0
    crash_after: int = 5
    #: it stops making progress at this step, for good
    hangs_at: int | None = None
    ignores_term: bool = False
    saves_on_term: bool = True


class Folder:
    """A checkpoint folder: two files that belong together."""

    def __init__(self) -> None:
        self.parts: dict[str, int] = {}
        self.version = 0
        self.changed = asyncio.Event()

    def write(self, name: str, step: int) -> None:
        """One file, in place."""
        self.parts[name] = step
        self.version += 1
        self.changed.set()

    def step(self) -> int:
        """The step both files hold; 0: none is there; -1: they do not belong together."""
        steps = set(self.parts.values())
        if not steps:
            return 0
        return steps.pop() if len(steps) == 1 and len(self.parts) == 2 else -1


class Training:
    """One process that runs a script."""

    def __init__(self, script: Script, who: Party, folder: Folder, ended: Callable[[int | None, str | None], None]) -> None:
        self._script, self._who, self._folder, self._ended = script, who, folder, ended
        self.step = max(0, folder.step())
        self._task: asyncio.Task[None] | None = None
        #: it ended, one way or another
        self.is_over = False
        #: somebody sent it a signal that it heeds
        self.was_told = False

    def start(self) -> None:
        """Begin."""
        self._task = self._begin(self._train())

    def signal(self, name: str) -> None:
        """What the script does about a signal."""
        if self.is_over or (name == "SIGTERM" and self._script.ignores_term):
            return
        self.was_told = True
        if self._task is not None:
            self._task.cancel()
        if name == "SIGKILL":
            self._over(None, "SIGKILL")
        else:
            self._task = self._begin(self._leave())

    async def _train(self) -> None:
        script, began = self._script, self.step
        while True:
            await self._who.sleep(script.step_s)
            self.step += 1
            if script.hangs_at is not None and self.step >= script.hangs_at:
                await asyncio.Event().wait()
            if script.crashes and self.step - began >= script.crash_after:
                self._over(CRASH, None)
                return
            if script.save_every and self.step % script.save_every == 0:
                await self._save()
            if self.step >= script.steps:
                self._over(script.code, None)
                return

    async def _save(self) -> None:
        self._folder.write("weights", self.step)
        await self._who.sleep(self._script.save_s)
        self._folder.write("optimizer", self.step)

    async def _leave(self) -> None:
        """Told to go: a last save where the script is so kind, then the end."""
        if self._script.saves_on_term and self._script.save_every:
            await self._save()
        self._over(CRASH, None)

    def _over(self, code: int | None, signal: str | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._ended(code, signal)

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._who.tasks.append(task)
        return task
