"""`run` and `submit`: how does what somebody typed become a job?"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from trainmaster.cli import render
from trainmaster.cli.words import json_option, run, split_pairs
from trainmaster.core.job import Code, JobId, JobRecord
from trainmaster.embedded import Embedded, Submission, exit_code, opened
from trainmaster.errors import InvalidSpec
from trainmaster.spec.job_spec import JobSpec

_JOB_FILES = {".yaml", ".yml", ".json"}
_JOB_FILE_BYTES_MAX = 4 << 20
_Command = Callable[..., Any]


def shared_options(command: _Command) -> _Command:
    """Options that `run`, `submit` and `study` have in common."""
    options = (
        click.argument("what", metavar="SCRIPT|JOB_FILE"),
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.option("--name", help="Name of the job; default: the script's name."),
        click.option("--env", multiple=True, metavar="K=V", help="Environment variable; repeatable. K alone passes yours on."),
        click.option("--tag", multiple=True, metavar="K=V", help="Tag to find the job by; repeatable."),
        click.option("--hp", multiple=True, metavar="K=V", help="Hyperparameter; repeatable."),
        click.option("--input", "input_", multiple=True, metavar="K=URI", help="Data: channel and folder or address; repeatable."),
        click.option("--cpus", type=float, help="CPU cores."),
        click.option("--memory", help="Memory, such as 16GiB."),
        click.option("--gpus", type=int, help="Number of GPUs."),
        click.option("--provider", help="Who has the machines: local (this machine), or simulated to see preemptions."),
        click.option("--priority", type=int, help="Higher goes first."),
        click.option("--failures", type=int, help="How many failures are retried."),
        click.option("--interruptions", type=int, help="How many interruptions are retried."),
        click.option("--keep-checkpoints", type=int, help="How many commits are kept."),
        click.option("--max-run", metavar="TIME", help="Longest total running time, such as 2h."),
        click.option("--source-dir", metavar="FOLDER", help="Folder with the code."),
        click.option("--requirements", metavar="FILE", help="Requirements file in the source folder; its packages are installed."),
        click.option("--python", metavar="VERSION", help="Python version, such as 3.11; it must be installed."),
        click.option("--in-place", is_flag=True, help="Run in the source folder itself instead of a snapshot."),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("run", context_settings={"ignore_unknown_options": False})
@shared_options
@click.option("--detach", "-d", is_flag=True, help="Return at once; the job goes on in the background.")
def run_command(what: str, arguments: tuple[str, ...], detach: bool, as_json: bool, **flags: Any) -> int:  # noqa: FBT001
    """Submit a job and follow it to its end.

    Ctrl-C once detaches: the job goes on. The exit code is 0 when the job succeeded, 1 when it failed, 3 when it was stopped.

    \b
    Examples:
      trainmaster run train.py --name a --tag team=vision -- --lr 0.1
      trainmaster run job.yaml
    """
    spec, folder = read_job(what, arguments, flags)
    return run(_run(spec, folder, detach=detach, as_json=as_json))


@click.command("submit")
@shared_options
def submit_command(what: str, arguments: tuple[str, ...], as_json: bool, **flags: Any) -> int:  # noqa: FBT001
    """Submit a job and return at once.

    The id is printed, and nothing else; the job runs in the background, also
    when you log out. What stands behind -- goes to the script.

    \b
    Examples:
      trainmaster submit train.py --name a -- --lr 0.1
      trainmaster submit job.yaml --hp lr=0.1 --gpus 1
    """
    spec, folder = read_job(what, arguments, flags)
    return run(_run(spec, folder, detach=True, as_json=as_json))


async def _run(spec: JobSpec, folder: Path, *, detach: bool, as_json: bool) -> int:
    end_at_ctrl_c()
    async with opened() as embedded:
        with until_accepted():
            submission = await embedded.submit(spec, folder, os.environ, render.progress)
        with once_accepted(submission.job.id):
            _tell(submission)
            return await detach_or_follow(embedded, submission.job, detach=detach, as_json=as_json)


def end_at_ctrl_c() -> None:
    """Until something is accepted, Ctrl-C ends the command at once, and nothing is left; asyncio would finish packing first."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def until_accepted() -> Iterator[None]:
    """What Ctrl-C says before."""
    try:
        yield
    except KeyboardInterrupt:
        render.interrupted("interrupted; nothing was submitted")
        raise click.exceptions.Exit(130) from None


@contextmanager
def once_accepted(name: str) -> Iterator[None]:
    """What Ctrl-C says after, as long as nobody follows the job."""
    try:
        yield
    except KeyboardInterrupt:
        render.interrupted(f"interrupted; {name} is submitted and goes on")
        raise click.exceptions.Exit(130) from None


async def detach_or_follow(embedded: Embedded, job: JobRecord, *, detach: bool, as_json: bool) -> int:
    """What comes after a job was accepted."""
    if not detach:
        return await _follow(embedded, job.id, as_json=as_json)
    await embedded.ensure_driven()
    if as_json:
        render.json(job)
    else:
        render.line(job.id)
        render.note(f"follow it: trainmaster logs -f {job.id}")
    return 0


async def _follow(embedded: Embedded, job_id: JobId, *, as_json: bool) -> int:
    """Drive the loop and print what comes, until the job is over or the user has seen enough."""
    import sys

    from trainmaster.cli.following import Follower, drive_and_follow

    follower = Follower(embedded, job_id, sys.stderr if as_json else sys.stdout)
    try:
        over = await drive_and_follow(embedded, follower)
    except BrokenPipeError:
        await embedded.ensure_driven()
        raise
    job = await embedded.service.get(job_id)
    if as_json:
        render.json(job)
    if not over:
        await embedded.ensure_driven()
        render.note(f"detached; {job.id} goes on", "bold")
        render.note(f"come back: trainmaster logs -f {job.id}")
        render.note(f"stop it:   trainmaster stop {job.id}")
        return 130
    if not as_json:
        from trainmaster.cli.looking import tell_end

        tell_end(job)
    return exit_code(job)


def read_job(what: str, arguments: tuple[str, ...], flags: dict[str, Any]) -> tuple[JobSpec, Path]:
    """The spec and its source folder, from a job file or a script and flags."""
    from trainmaster.spec.parse import spec_from_mapping

    mapping, folder = read_mapping(what, arguments, flags)
    return spec_from_mapping(mapping), folder


def read_mapping(what: str, arguments: tuple[str, ...], flags: dict[str, Any]) -> tuple[dict[str, object], Path]:
    """What a job file says, or a script stands for, with flags laid over it; nothing of it is checked yet."""
    from trainmaster.spec.parse import with_overrides

    path = Path(what)
    _refuse_no_file(path, what)
    if flags["source_dir"] and not os.path.isdir(flags["source_dir"]):
        raise InvalidSpec("--source-dir", f"{flags['source_dir']} is not a folder", hint="name the folder your code lies in")
    if path.suffix in _JOB_FILES:
        mapping, folder = _from_file(path, arguments)
    else:
        mapping, folder = _from_script(path, arguments, flags["source_dir"])
    if flags["source_dir"]:
        folder = Path(flags["source_dir"]).absolute()
    mapping = with_overrides(mapping, _overrides(flags))
    mapping["source_dir"] = str(folder)
    return mapping, folder


def _refuse_no_file(path: Path, what: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InvalidSpec("", f"{what} does not exist", hint=_nearby(path)) from error
    except OSError as error:
        raise InvalidSpec("", f"{what} cannot be opened: {error.strerror}", hint="check the path") from error
    if stat.S_ISDIR(mode):
        hint = f"name a script or a job file in it: trainmaster run {what.rstrip('/')}/train.py"
        raise InvalidSpec("", f"{what} is a folder", hint=hint)
    if not stat.S_ISREG(mode):
        raise InvalidSpec("", f"{what} is not a file", hint="name a script or a job file")


def _from_file(path: Path, arguments: tuple[str, ...]) -> tuple[dict[str, object], Path]:
    from trainmaster.spec.parse import load_mapping_json, load_mapping_yaml

    try:
        with open(path, "rb") as file:
            read = file.read(_JOB_FILE_BYTES_MAX + 1)
        if len(read) > _JOB_FILE_BYTES_MAX:
            raise InvalidSpec(str(path), "is larger than 4 MiB", hint="a job file holds a few lines; data belongs beside it")
        text = read.decode()
    except UnicodeDecodeError as error:
        raise InvalidSpec(str(path), "is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise InvalidSpec(str(path), f"cannot be read: {error.strerror}", hint="make it readable") from error
    load = load_mapping_json if path.suffix == ".json" else load_mapping_yaml
    mapping = load(text, str(path))
    if arguments:
        given = mapping.get("arguments", [])
        mapping["arguments"] = [*(given if isinstance(given, list) else []), *arguments]
    inputs = mapping.get("inputs")
    if isinstance(inputs, dict):
        mapping["inputs"] = {name: _from_folder(given, path.absolute().parent) for name, given in inputs.items()}
    source = mapping.get("source_dir")
    folder = path.absolute().parent / (source if isinstance(source, str) else ".")
    return mapping, Path(os.path.normpath(folder))


def _from_script(path: Path, arguments: tuple[str, ...], source_dir: str | None) -> tuple[dict[str, object], Path]:
    """As if it were run right here: the current folder is the source, unless the script lies outside of it."""
    is_program = path.suffix in {".py", ".sh"} or os.access(path, os.X_OK)
    if not is_program:
        raise InvalidSpec(
            "", f"{path} is neither a job file (.yaml, .json) nor a script", hint="a script ends in .py or .sh, or can be executed"
        )
    script = path.absolute()
    folder = Path(source_dir).absolute() if source_dir else Path.cwd()
    if not script.is_relative_to(folder):
        if source_dir:
            raise InvalidSpec("--source-dir", f"{path} does not lie in {folder}", hint="name a folder that holds the script")
        folder = script.parent
    return {"entry_point": script.relative_to(folder).as_posix(), "arguments": list(arguments)}, folder


def _overrides(flags: dict[str, Any]) -> dict[str, object]:
    env = {}
    for word in flags["env"]:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise InvalidSpec("--env", f"{name} is not set here", hint=f"write --env {name}=VALUE")
        env[name] = value if equals else os.environ[name]
    found: dict[str, object] = {
        "env": env,
        "tags": split_pairs(flags["tag"], "--tag"),
        "hyperparameters": {k: typed(v) for k, v in split_pairs(flags["hp"], "--hp").items()},
        "inputs": {k: _from_folder(v, Path.cwd()) for k, v in split_pairs(flags["input_"], "--input").items()},
    }
    named = {
        "name": "name",
        "cpus": "resources.cpus",
        "memory": "resources.memory",
        "gpus": "resources.gpus",
        "provider": "provider",
        "priority": "priority",
        "failures": "retry.failures",
        "interruptions": "retry.interruptions",
        "keep_checkpoints": "checkpoints.keep",
        "max_run": "limits.run",
        "requirements": "environment.requirements",
        "python": "environment.python",
    }
    found.update({field: flags[flag] for flag, field in named.items() if flags[flag] is not None})
    if flags["in_place"]:
        found["in_place"] = True
    return found


def _from_folder(given: object, folder: Path) -> object:
    """A channel whose path, if it is one, no longer depends on where we stand."""
    if isinstance(given, dict) and "uri" in given:
        return {**given, "uri": _from_folder(given["uri"], folder)}
    if not isinstance(given, str) or not given.strip() or "://" in given or "\0" in given:
        return given
    return os.path.normpath(folder / os.path.expanduser(given))


def typed(text: str) -> object:
    """A hyperparameter typed as it reads: 0.1 is a number, true is a truth value, the rest is text."""
    import msgspec

    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value if isinstance(value, int | float | bool) else text


def _nearby(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / near[0]}?" if near else "check the path"


def _tell(submission: Submission) -> None:
    tell_code(submission.job.id, submission.job.id, submission.job.code, submission.left_out, submission.notes)


def tell_code(name: str, job_id: str, code: Code, left_out: Sequence[tuple[str, str]], notes: Sequence[str]) -> None:
    """What the snapshot holds, and what it does not; `job_id` is of a job that has it."""
    for text in notes:
        render.note(text, "yellow")
    if left_out:
        shown = ", ".join(path for path, _ in left_out[:4])
        more = f" and {len(left_out) - 4} more" if len(left_out) > 4 else ""
        render.note(f"left out of the snapshot: {shown}{more}  (trainmaster show {job_id} lists them)")
    if code.in_place:
        render.note(f"{name}: runs in {code.folder} itself; there is no snapshot of the code", "yellow")
        return
    commit = f", commit {code.commit[:9]}{' + changes' if code.dirty else ''}" if code.commit else ""
    render.note(f"{name}: {render.count(code.files, 'file')}, {render.size(code.size_bytes)} packed{commit}")
