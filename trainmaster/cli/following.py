"""`logs`, `wait`, `stop`: being there while a job runs."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TextIO

import click

from trainmaster.cli import render
from trainmaster.cli.bar import Bar
from trainmaster.cli.words import json_option, run, with_embedded
from trainmaster.core.job import JobId, JobRecord
from trainmaster.embedded import Embedded, exit_code, opened
from trainmaster.errors import InvalidSpec
from trainmaster.spec import layout
from trainmaster.spec.job_spec import Environment

_POLL_S = 0.2  # chunks of a log come once a second
#: A longer line is printed in parts: one without an end must not fill the memory.
_LINE_BYTES_MAX = 1 << 20


class LogCursor:
    """Reads the log of one attempt on one node, chunk by chunk; a job's bytes are never all in memory."""

    def __init__(self, embedded: Embedded, job_id: JobId, attempt: int, node: int) -> None:
        self._store, self._prefix, self._seq = embedded.store, layout.log_prefix(job_id, attempt, node), 0

    def next_chunk(self) -> bytes | None:
        """The next chunk, or None if it is not there yet."""
        data = self._store.get(layout.chunk(self._prefix, self._seq))
        if data is not None:
            self._seq += 1
        return data


class Follower:
    """Prints a job's log and its phases as they come."""

    def __init__(self, embedded: Embedded, job_id: JobId, out: TextIO) -> None:
        self._embedded, self.job_id, self._out = embedded, job_id, out
        self._attempt = 0
        self._cursor: LogCursor | None = None
        self._lines_told = 0
        self._revision = -1
        self._bar = Bar()
        self._doing = ""

    async def look(self) -> JobRecord:
        """Print what is new; the record as it is now."""
        job = await self._embedded.service.get(self.job_id)
        self._drain()
        if job.revision != self._revision:
            self._revision = job.revision
            await self._tell_story(is_over=job.is_finished)
            while self._attempt < job.attempt:
                self._drain()
                self._attempt += 1
                self._cursor = LogCursor(self._embedded, job.id, self._attempt, 0)
        await self._tell_set_up(job)
        if job.is_finished:
            self._drain()
            self._bar.end(is_done=bool(job.attempts) and job.attempts[-1].timeline.uploaded_at is not None)
        elif sys.stderr.isatty():
            self._bar.look(job.attempt, await self._embedded.service.heartbeat(job))
        return job

    async def _tell_set_up(self, job: JobRecord) -> None:
        """An environment may take minutes to build; a job that asks for none has nothing to tell."""
        if job.spec.environment == Environment() or not job.attempts or job.is_finished or job.current.timeline.set_up_at:
            return
        beat = await self._embedded.service.heartbeat(job)
        if beat is not None and beat.doing != self._doing:
            self._doing = beat.doing
            if beat.doing:
                self._bar.hide()
                render.note(f"● {beat.doing}")

    def leave(self) -> None:
        """Nobody looks any more: the job may go on, its bar does not."""
        self._bar.end(is_done=False)

    def _drain(self) -> None:
        while self._cursor is not None and (data := self._cursor.next_chunk()) is not None:
            self._bar.hide()
            render.raw(data, self._out)

    async def _tell_story(self, *, is_over: bool) -> None:
        """What happened on the way; the end itself is told by whoever started us."""
        lines = await self._embedded.ports.database.story(self.job_id)
        lines = lines[:-1] if is_over else lines
        for line in lines[self._lines_told :]:
            if line.event in {"interrupted", "resumes", "crashed", "stop_requested", "no_capacity", "data_changed"}:
                self._drain()
                self._bar.hide()
                render.note(f"● {line.sentence}", "yellow")
        self._lines_told = len(lines)


async def drive_and_follow(embedded: Embedded, follower: Follower) -> bool:
    """Drive every job and print this one until it is over; False if the user detached with Ctrl-C, or we were told to go."""
    leave = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, leave.set)
    finished = False

    async def is_over() -> bool:
        nonlocal finished
        finished = (await follower.look()).is_finished
        return finished or leave.is_set()

    await embedded.drive(is_over)
    follower.leave()
    return finished


@click.command("logs")
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has finished.")
@click.option("--node", type=click.IntRange(0), metavar="N", default=0, help="Which machine; default 0.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Which attempt; default: all, in order.")
@click.option("--setup", "is_setup", is_flag=True, help="What building its environment and the setup commands printed instead.")
@json_option
def logs_command(job: str, follow: bool, node: int, attempt: int | None, is_setup: bool, as_json: bool) -> int:  # noqa: FBT001
    """Print what a job printed.

    Every byte, in order, of all attempts. With -f it goes on until the job
    has finished; Ctrl-C only ends the looking.

    \b
    Examples:
      trainmaster logs -f last
      trainmaster logs mnist-k7q2m --attempt 2
    """

    async def work(embedded: Embedded) -> int:
        job_id = await embedded.service.resolve(job)
        record = await embedded.service.get(job_id)
        _refuse_unknown(record, attempt, node)
        if is_setup:
            numbers = [attempt] if attempt is not None else range(1, record.attempt + 1)
            found = [
                _print_set_up(embedded, LogPrinter(n, node, as_json=as_json), layout.setup_log(job_id, n, node)) for n in numbers
            ]
            if not any(found):
                render.note(f"nothing was built for {job_id}, and no setup command ran")
            return 0
        looks = 0
        number = attempt or 1
        cursor, printer = LogCursor(embedded, job_id, number, node), LogPrinter(number, node, as_json=as_json)
        while True:
            if looks % 5 == 0:
                await embedded.ensure_driven()
            looks += 1
            record = await embedded.service.get(job_id)
            while (data := cursor.next_chunk()) is not None:
                printer.print(data)
            if attempt is None and number < record.attempt:
                printer.end()
                number += 1
                cursor, printer = LogCursor(embedded, job_id, number, node), LogPrinter(number, node, as_json=as_json)
            elif not follow or record.is_finished or (attempt is not None and attempt < record.attempt):
                printer.end()
                pruned_at = None if printer.has_printed else await embedded.service.pruned_at(record)
                if pruned_at is not None:
                    render.note(f"its logs were pruned at {render.clock(pruned_at)}")
                return 0
            else:
                await asyncio.sleep(_POLL_S)

    return with_embedded(work)


def _print_set_up(embedded: Embedded, printer: LogPrinter, key: layout.Key) -> bool:
    """Print the set-up log of one attempt; whether there is one."""
    data = embedded.store.get(key)
    printer.print(data or b"")
    printer.end()
    return data is not None


def _refuse_unknown(record: JobRecord, attempt: int | None, node: int) -> None:
    if attempt is not None and attempt > max(1, record.attempt):
        has = "one attempt" if record.attempt == 1 else f"{record.attempt} attempts"
        raise InvalidSpec("--attempt", f"found {attempt}; {record.id} has had {has}", hint="attempts are counted from 1")
    nodes = record.spec.resources.nodes
    if node >= nodes:
        has = "one machine" if nodes == 1 else f"{nodes} machines"
        raise InvalidSpec("--node", f"found {node}; {record.id} has {has}", hint="machines are counted from 0")


class LogPrinter:
    """Prints the log of one attempt on one node: as it is, or each line as JSON. A line may span chunks."""

    def __init__(self, attempt: int, node: int, *, as_json: bool) -> None:
        self._line = {"attempt": attempt, "node": node}
        self._as_json = as_json
        self._begun = b""
        self.has_printed = False

    def print(self, data: bytes) -> None:
        """Print what is new."""
        self.has_printed = True
        if not self._as_json:
            render.raw(data)
            return
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._print_line(line)
        if len(self._begun) > _LINE_BYTES_MAX:
            self.end()

    def end(self) -> None:
        """Print the line that has no end."""
        if self._begun:
            self._print_line(self._begun)
            self._begun = b""

    def _print_line(self, line: bytes) -> None:
        render.json_line({**self._line, "text": line.decode(errors="replace")})


@click.command("wait")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB|STUDY...")
@click.option("--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Give up after so many seconds; exit code 4 then.")
@json_option
def wait_command(jobs: tuple[str, ...], timeout: float | None, as_json: bool) -> int:  # noqa: FBT001
    """Wait until jobs have finished, and all jobs of studies.

    The exit code is 0 when all succeeded, 1 when one failed, 3 when one was stopped, 4 when the time is over; the highest of them.

    \b
    Examples:
      trainmaster wait last
      trainmaster wait mnist-k7q2m sweep-h3p7w --timeout 600
    """

    async def inside() -> int:
        async with opened() as embedded:
            ids, studies = await _meant(embedded, jobs)
            try:
                async with asyncio.timeout(timeout):
                    for job_id in ids:
                        await embedded.until_finished(job_id)
                    for study_id in studies:
                        await _until_over(embedded, study_id)
            except TimeoutError:
                render.note(f"the {timeout:g} s are over")
            records = [await embedded.service.get(job_id) for job_id in ids]
            records += [job for study_id in studies for job in await embedded.studies.jobs(study_id)]
            if as_json:
                render.json(records if len(records) > 1 else records[0])
            else:
                _tell_ends(records)
            return max(exit_code(record) for record in records)

    return run(inside())


async def _meant(embedded: Embedded, names: tuple[str, ...]) -> tuple[list[JobId], list[str]]:
    """The jobs and the studies that were named."""
    ids: list[JobId] = []
    studies: list[str] = []
    for name in names:
        study = await embedded.studies.find(name)
        if study is not None:
            studies.append(study.id)
        else:
            ids.append(await embedded.service.resolve(name))
    return ids, studies


async def _until_over(embedded: Embedded, study_id: str) -> None:
    from trainmaster.embedded.studies import until_over

    await until_over(embedded, study_id)


def _tell_ends(records: list[JobRecord]) -> None:
    from trainmaster.cli.looking import tell_end

    for record in records:
        if record.is_finished:
            tell_end(record)
        else:
            render.note(f"{record.id} has not finished")


@click.command("stop")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB|STUDY...")
@click.option("--why", "sentence", default="", help="A sentence for the record.")
@click.option("--wait", "and_wait", is_flag=True, help="Return when they have finished.")
@json_option
def stop_command(jobs: tuple[str, ...], sentence: str, and_wait: bool, as_json: bool) -> int:  # noqa: FBT001
    """Ask jobs to stop, gracefully, and all jobs of studies.

    The script gets SIGTERM and its grace (limits.grace, 30 s), then SIGKILL. What it saved is committed.

    \b
    Examples:
      trainmaster stop last --why "wrong data"
      trainmaster stop --wait mnist-k7q2m sweep-h3p7w
    """

    async def work(embedded: Embedded) -> int:
        user = embedded.user
        ids, studies = await _meant(embedded, jobs)
        why = sentence or f"{user} stopped it."
        records = [await embedded.service.stop(job_id, user, why) for job_id in ids]
        asked = {study_id: await embedded.studies.stop(study_id, user, why) for study_id in studies}
        await embedded.ensure_driven()
        if and_wait:
            for job_id in ids:
                await embedded.until_finished(job_id)
            for study_id in studies:
                await _until_over(embedded, study_id)
            records = [await embedded.service.get(job_id) for job_id in ids]
        if as_json:
            records += [job for study_id in studies for job in await embedded.studies.jobs(study_id)]
        else:
            for study_id, count in asked.items():
                is_over = and_wait or all(child.outcome for child in await embedded.studies.children(study_id))
                word = "has finished" if is_over else "is told to stop"
                word = f"{word} already" if not count else word
                render.line(f"{study_id} {word}" + (f": {render.count(count, 'job')}" if count else ""))
        if as_json:
            render.json(records)
        else:
            for record in records:
                word = f"has finished already: {record.outcome}" if record.outcome and not and_wait else "is told to stop"
                render.line(f"{record.id} {word if not and_wait else f'has finished: {record.outcome}'}")
        return 0

    return with_embedded(work)
