"""How is an old job run again? Resumed from its last commit, or repeated from its sealed record, if need be the bucket's."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmaster.adapters.file_locks import try_hold
from trainmaster.control.observe import commits
from trainmaster.core.checkpoints import stand_ins
from trainmaster.core.job import Code, JobRecord, Origin
from trainmaster.core.submission import new_job, repeated, resumed, why_not_resume
from trainmaster.embedded.session import Embedded, make_id
from trainmaster.errors import Refused, UnknownJob
from trainmaster.spec import layout
from trainmaster.spec.job_spec import JobSpec

_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Amend = Callable[[JobSpec], JobSpec]


async def find_record(embedded: Embedded, text: str) -> JobRecord:
    """The record of a job: from this home, or sealed in the bucket when another home had it."""
    try:
        return await embedded.service.get(await embedded.service.resolve(text))
    except UnknownJob as unknown:
        if any(left.job_id == text for left in await embedded.ports.database.leftovers()):
            raise  # it was deleted; its files are about to go
        value = embedded.store.get(layout.record(text)) if _JOB_ID.fullmatch(text) else None
        if value is not None:
            return _decoded(text, value)
        if _JOB_ID.fullmatch(text) and embedded.store.get(layout.spec(text)) is not None:
            hint = "its record is sealed when it has finished"
            raise Refused(f"{text} is a job of another home, and has not finished", hint=hint) from unknown
        raise


def _decoded(job_id: str, value: bytes) -> JobRecord:
    try:
        return msgspec.json.decode(value, type=JobRecord)
    except msgspec.DecodeError as error:
        raise Refused(
            f"the record of {job_id} in the store cannot be read: {error}", hint="a newer release may have written it"
        ) from error


@contextlib.contextmanager
def going_on(embedded: Embedded, name: str) -> Iterator[None]:
    """One command at a time goes on with a job, or with a study and its jobs; and nobody takes away what it needs."""
    # The name may come from another home's record.
    path = embedded.config.home_path / "resuming" / hashlib.sha256(name.encode()).hexdigest()[:32]
    descriptor = try_hold(path, shared=False)
    if descriptor is None:
        raise Refused(f"another command resumes {name} right now", hint=f"`trainmaster show {name}` shows what came of it")
    try:
        with _held(embedded):
            yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def _held(embedded: Embedded) -> Iterator[None]:
    """Until the new job is accepted, nobody deletes the old one; what is known of it is looked up inside."""
    with embedded.held:
        embedded.held.enter_context(embedded.home.submitting())
        yield


async def resume_job(embedded: Embedded, old: JobRecord, environ: Mapping[str, str], change: Amend) -> JobRecord:
    """A stopped or failed job goes on as a new one, from its last commit, with new budgets; the old record stays as it is."""
    with going_on(embedded, old.id if old.study is None else old.study.id):
        old = await find_record(embedded, old.id)  # as it is now, that nobody can take it away
        why_not = why_not_resume(old)
        if why_not:
            hint = f"`trainmaster rerun {old.id}` repeats it" if old.is_finished else f"`trainmaster stop {old.id}` ends it"
            raise Refused(why_not, hint=hint)
        source = old.id if old.head is not None or old.continues is None else old.continues.source
        for later in await embedded.ports.database.continuations(source):
            if not later.is_finished and later.continues is not None and later.continues.job == old.id:
                raise Refused(f"{old.id} goes on as {later.id} already", hint=f"`trainmaster show {later.id}` shows it")
        spec = change(old.spec)
        new = resumed(old, _new(embedded, old, spec, environ))
        await refuse_no_checkpoint(embedded, new)
        if new.study is not None:
            new = replace(new, study=replace(new.study, batch=""))  # its environment is kept under its own name
        return await embedded.accept(new, environ)


async def refuse_no_checkpoint(embedded: Embedded, new: JobRecord) -> None:
    """Find out now what would fail in a minute: what the new job goes on from is not there any more."""
    continues = new.continues
    if continues is None or continues.checkpoint is None:
        return
    store, source = embedded.ports.store, continues.source
    if await store.get(layout.pruned(source)) is None:
        found = await commits(source, store)
        there = {ref.id for ref in found}
        if any(ref.id in there for ref in stand_ins(continues.checkpoint, continues.heads, found)):
            return
    raise Refused(
        f"checkpoint {continues.checkpoint.id} of {source}, from which {continues.job} would go on, is not in the store",
        hint=f"`trainmaster rerun {continues.job}` runs it again from the beginning",
    )


async def rerun_job(embedded: Embedded, old: JobRecord, environ: Mapping[str, str], change: Amend) -> JobRecord:
    """A job like the old one, from its beginning: same code, parameters, inputs, seed and environment but for what is changed."""
    with _held(embedded):
        old = await find_record(embedded, old.id)
        spec = await embedded.admitted(change(old.spec))
        if spec.environment != old.spec.environment:
            _refuse_impossible_environment(embedded, spec, old.code, environ)
        return await embedded.accept(repeated(old, _new(embedded, old, spec, environ)), environ)


def _refuse_impossible_environment(embedded: Embedded, spec: JobSpec, code: Code, environ: Mapping[str, str]) -> None:
    """As when it is submitted, with the files of the snapshot; its wheels are the old ones, and in the store."""
    import tempfile

    from trainmaster.adapters.environments.submission import SubmittedEnvironment
    from trainmaster.adapters.source_diff import SNAPSHOT_BYTES_MAX, unpacked

    asked = replace(spec.environment, wheels=None)
    with tempfile.TemporaryDirectory(prefix="trainmaster-rerun-") as place:
        folder = Path(place) / "code"
        if code.in_place:
            folder = Path(code.folder)
        elif isinstance(asked.requirements, str) or asked.conda is not None:
            if code.size_bytes > SNAPSHOT_BYTES_MAX:
                return
            unpacked(embedded.store, code, folder)
        SubmittedEnvironment(asked, folder, environ).refuse_impossible(embedded.config.home_path)


def _new(embedded: Embedded, old: JobRecord, spec: JobSpec, environ: Mapping[str, str]) -> JobRecord:
    refuse_no_code(embedded, old.code)
    return new_job(make_id(spec.name), spec, old.code, _origin(old.origin, environ), embedded.ports.clock.now())


def _origin(old: Origin, environ: Mapping[str, str]) -> Origin:
    """Who asks now; on the same machine with the interpreter of that time, as long as it is there."""
    from trainmaster import __version__
    from trainmaster.adapters.submitter import find_origin, user_name

    host = os.uname().nodename
    if old.host == host and os.access(old.python, os.X_OK):
        return Origin(user=user_name(), host=host, folder=str(Path.cwd()), python=old.python, version=__version__)
    return find_origin(environ, Path.cwd(), __version__)


def refuse_no_code(embedded: Embedded, code: Code) -> None:
    """Find out now what would fail in a minute: the code is not there any more."""
    if code.in_place:
        if not os.path.isdir(code.folder):
            raise Refused(
                f"it ran in {code.folder}, which is not here", hint="a job that runs in place keeps no snapshot of its code"
            )
        return
    if embedded.store.get_range(layout.code(code.sha256 or ""), 0, 1) is None:
        hint = "it was removed; submit the job anew from its folder"
        raise Refused(f"the code snapshot {(code.sha256 or '')[:12]} is not in the store", hint=hint)
