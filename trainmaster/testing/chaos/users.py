"""What do users do while a world is attacked? They submit, follow, stop and look; what they are told is never a traceback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Coroutine, Iterator

from trainmaster.testing.chaos.chronicle import Chronicle
from trainmaster.testing.chaos.draw import ChaosJob
from trainmaster.testing.chaos.lookout import Lookout
from trainmaster.testing.chaos.scene import CommandEnd, Scene
from trainmaster.testing.witness import Submitted

#: docs/reference/exit-codes.md
_DOCUMENTED = frozenset({0, 1, 2, 3, 4, 5, 130})
_JOBS_AT_ONCE = 4
#: a command that only looks or asks gives up on a store or a database that is away long before this
_COMMAND_S_MAX = 120.0
_RUN_S_MAX = 600.0
_STOPS_MAX = 100
_LOOKS = ("list", "list --json", "show", "show --json", "why", "why --json", "logs", "checkpoints", "metrics")


class Users:
    """Several people at one home."""

    def __init__(self, scene: Scene, lookout: Lookout, chronicle: Chronicle, rng: random.Random, jobs: Iterator[ChaosJob]) -> None:
        self._scene, self._lookout, self._chronicle, self._rng, self._jobs = scene, lookout, chronicle, rng, jobs
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitting: set[str] = set()
        self.plans: dict[str, ChaosJob] = {}
        self._is_calm = False

    def begin(self) -> None:
        """Start to submit and to look."""
        self._do(self._submit_on())
        self._do(self._look_on())

    async def leave(self) -> None:
        """No new jobs, no new looks; what was begun goes on to its end."""
        self._is_calm = True

    async def gone(self, timeout_s: float) -> bool:
        """Wait until every command has ended; False if one has not."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        return not self._tasks

    async def end(self) -> None:
        """Nobody gives another command, whatever they still wanted."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._chronicle.wrong("chaos_itself", f"a user broke: {task.exception()!r}")

    async def command(self, *words: str, timeout_s: float = _COMMAND_S_MAX) -> CommandEnd:
        """Give a command; its answer is judged."""
        self._chronicle.counts["commands"] += 1
        end = await self._scene.command(*words, timeout_s=timeout_s, now_s=self._chronicle.now_s)
        said = f"`trainmaster {' '.join(words)}`"
        if "Traceback" in end.err or "Traceback" in end.out.replace('"traceback"', ""):
            self._chronicle.wrong("commands_speak_plainly", f"{said} printed a traceback:\n{end.err[-3000:]}")
        if end.code == 124:
            self._chronicle.wrong("commands_end", f"{said} had not ended after {timeout_s:g} s")
        elif not end.is_killed and end.code not in _DOCUMENTED:
            self._chronicle.wrong("commands_speak_plainly", f"{said} ended with {end.code}, which means nothing")
        elif end.code == 2:
            self._chronicle.wrong("commands_speak_plainly", f"{said} blames its user, who did nothing wrong: {end.err[-1000:]}")
        return end

    async def _submit_on(self) -> None:
        while not self._is_calm:
            known = {record.spec.name for record in self._lookout.records.values()}
            if len(self._lookout.unfinished) + len(self._submitting - known) < _JOBS_AT_ONCE:
                job = next(self._jobs)
                self.plans[job.name] = job
                self._submitting.add(job.name)
                self._do(self._submit(job))
            await asyncio.sleep(0.3)

    async def _submit(self, job: ChaosJob) -> None:
        """A user whose command failed or was killed gives it again: then there may be two such jobs."""
        file = self._scene.job_file(job)
        if job.stop_after_s is not None:
            self._do(self._stop_later(job, job.stop_after_s))
        verb, timeout_s = ("run", _RUN_S_MAX) if job.is_followed else ("submit", _COMMAND_S_MAX)
        try:
            while not self._is_calm and not self._ids(job):
                end = await self.command(verb, file, "--json", timeout_s=timeout_s)
                with contextlib.suppress(ValueError, KeyError):
                    self._chronicle.note(Submitted(self._chronicle.now_s(), json.loads(end.out)["id"]))
                    break
                await asyncio.sleep(0.5)
        finally:
            self._submitting.discard(job.name)

    async def _stop_later(self, job: ChaosJob, after_s: float) -> None:
        """A while after it was asked for; if it is not there yet, a while later."""
        while not self._is_calm:
            await asyncio.sleep(after_s)
            if self._ids(job):
                await self.stop(job)
                return

    def _ids(self, job: ChaosJob) -> list[str]:
        return [record.id for record in self._lookout.records.values() if record.spec.name == job.name]

    async def stop(self, job: ChaosJob) -> None:
        """Ask for the end of a job until the answer is heard."""
        for job_id in self._ids(job):
            for _ in range(_STOPS_MAX):
                if (await self.command("stop", job_id, "--why", "enough")).code == 0:
                    break
                await asyncio.sleep(0.5)

    async def _look_on(self) -> None:
        while not self._is_calm:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5))
            words = self._rng.choice(_LOOKS).split()
            if words[0] != "list":
                if not self._lookout.records:
                    continue
                words.insert(1, self._rng.choice(sorted(self._lookout.records)))
            self._do(self._look(*words))

    async def _look(self, *words: str) -> None:
        await self.command(*words)
