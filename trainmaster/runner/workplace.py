"""What does a job find when it starts? Folders, code, configuration files and environment, as the script contract says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters.environments.activation import activated
from trainmaster.adapters.source_changes import FileMarks, changed_since, file_marks
from trainmaster.adapters.source_unpack import unpack
from trainmaster.core.job import CheckpointRef
from trainmaster.core.messages import JobFile
from trainmaster.errors import StoreError, UserError
from trainmaster.ports.object_store import BlockingStore
from trainmaster.ports.provider import LaunchRequest
from trainmaster.runner.checkpoint_folder import as_text, is_utf8
from trainmaster.spec import layout, script_contract
from trainmaster.spec.layout import Key

_FOLDERS = ("code", "input/data", "input/config", "checkpoints", "model", "output/data", "output/tensorboard", "output/profiler")
_LISTED_MAX = 200
#: Where the whole package is installed too, its other modules are still found.
_GIVE_WAY = '\n__path__ = __import__("pkgutil").extend_path(__path__, __name__)\n'


class SetUpError(UserError):
    """The job cannot be set up on this machine; trying again here would not help."""


class EnvironmentFailed(SetUpError):
    """It was the environment that the job asked for: its packages, its Python, its set-up commands."""


class Workplace(Struct, kw_only=True):
    """The folders of one attempt on one machine."""

    home: Path
    request: LaunchRequest
    #: set once it has been read from the store
    known: JobFile | None = None
    before: FileMarks = {}
    #: the environment that was built for the job; None: the submitter's interpreter as it is
    environment: Path | None = None

    @property
    def file(self) -> JobFile:
        """What was asked."""
        assert self.known is not None
        return self.known

    @property
    def working(self) -> Path:
        """Where the script runs."""
        return Path(self.file.code.folder) if self.file.code.in_place else self.home / "code"

    @property
    def checkpoints(self) -> Path:
        """The folder whose content is committed."""
        named = self.file.spec.checkpoints.directory
        return self.working / named if named else self.home / "checkpoints"

    @property
    def metrics_file(self) -> Path:
        """Where the helper writes."""
        return self.home / "metrics.jsonl"


def prepare(place: Workplace, store: BlockingStore) -> None:
    """Make the tree and fetch the code."""
    for folder in _FOLDERS:
        (place.home / folder).mkdir(parents=True, exist_ok=True)
    _fetch_code(place, store)
    place.checkpoints.mkdir(parents=True, exist_ok=True)
    if not place.file.code.in_place:
        place.before = file_marks(place.working)
    lib = place.home / "lib" / "trainmaster"
    lib.mkdir(parents=True, exist_ok=True)
    helper = (Path(__file__).parent.parent / "helper.py").read_text()
    (lib / "__init__.py").write_text(helper + _GIVE_WAY)


def _fetch_code(place: Workplace, store: BlockingStore) -> None:
    code = place.file.code
    if code.in_place:
        if not place.working.is_dir():
            raise SetUpError(f"the folder {place.working} is not here any more")
        return
    assert code.sha256 is not None
    archive = place.home / "code.tar.zst"
    if store.get_file(layout.code(code.sha256), archive) is None:
        raise SetUpError(f"the code snapshot {code.sha256[:12]} is not in the store")
    try:
        unpack(archive, place.working, expect_sha256=code.sha256)
    except UserError as error:
        raise SetUpError(f"the code snapshot cannot be unpacked: {error.sentence}") from error
    archive.unlink()


def start_up(place: Workplace, resumes: CheckpointRef | None, base: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Write the configuration files; the command line and the environment of the script."""
    spec = place.file.spec
    context = script_contract.ScriptContext(
        job_id=place.file.id,
        job_name=spec.name,
        attempt=place.request.attempt,
        base_dir=str(place.home),
        checkpoint_dir=str(place.checkpoints),
        metrics_file=str(place.metrics_file),
        code_dir=str(place.working),
        master_port=_free_port(),
        cpus=max(1, round(place.request.placement.cpus)),
        gpus=len(place.request.placement.gpus),
        channels=tuple(sorted(spec.inputs)),
        resume_step=resumes.step if resumes is not None else None,
        resume_checkpoint=resumes.id if resumes is not None else None,
        seed=place.file.seed,
    )
    for path, content in script_contract.config_files(spec, context).items():
        target = place.home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    ours = script_contract.script_environment(spec, context)
    ours["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, place.request.placement.gpus))
    python = place.file.origin.python
    if place.environment is not None:
        base, python = activated(place.environment, base), str(place.environment / "bin" / "python")
    environ = script_contract.merged_environment(base, spec.env, ours)
    paths = [p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    environ["PYTHONPATH"] = os.pathsep.join([*paths, str(place.home / "lib")])
    return script_contract.command_line(spec, python), environ


def note_use(environment: Path) -> None:
    """The environment was used until now: what is not used for long may go."""
    with suppress(OSError):
        os.utime(environment.parent / "used")


def _free_port() -> int:
    """A port nobody uses now: two jobs on one machine must not meet."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def submission_environment(file: Path | None) -> dict[str, str]:
    """The environment the job was submitted from; where none was kept, this process's own."""
    if file is None:
        return dict(os.environ)
    try:
        kept: dict[str, str] = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise SetUpError(f"the environment it was submitted from is not here any more: {file}") from None
    return kept


def failure_text(place: Workplace) -> str:
    """What the script wrote to output/failure."""
    try:
        with open(place.home / "output" / "failure", "rb") as file:
            return file.read(1024).decode(errors="replace").strip()
    except OSError:
        return ""


def left_behind(place: Workplace) -> list[str]:
    """Files the script wrote into its working folder; what is asked for is kept, the rest is only listed."""
    if place.file.code.in_place:
        return []
    own = os.path.relpath(place.checkpoints, place.working)
    paths = changed_since(place.before, place.working)
    return [path for path in paths if not (path.startswith(f"{own}/") or "__pycache__" in path.split("/"))]


def artifacts(place: Workplace) -> list[tuple[Key, Path]]:
    """What is uploaded at the end: model/, output/, and what was asked for of the working folder."""
    job_id = place.file.id
    pairs = [
        *_below(layout.model(job_id), place.home / "model"),
        *_below(layout.output(job_id), place.home / "output"),
    ]
    keep = place.file.spec.outputs.keep
    for path in left_behind(place):
        if is_utf8(path) and any(_matches(path, pattern) for pattern in keep):
            pairs.append((Key(f"{layout.working(job_id)}/{path}"), place.working / path))
    return pairs


def not_kept(place: Workplace) -> list[str]:
    """What the script left in its working folder and nobody asked to keep, for the record."""
    keep = place.file.spec.outputs.keep
    paths = [path for path in left_behind(place) if not any(_matches(path, pattern) for pattern in keep)]
    return [as_text(path) for path in paths[:_LISTED_MAX]]


def upload(
    pairs: Iterable[tuple[Key, Path]], store: BlockingStore, progress: Callable[[int], None], may_write: Callable[[], bool]
) -> None:
    """Upload files one by one, inside the attempt lease only: their keys carry no attempt, and a successor may write them."""
    for key, path in pairs:
        if not may_write():
            raise StoreError("the attempt lease is not renewed")
        try:
            store.put_file(key, path, progress)
        except FileNotFoundError:
            continue  # removed by the script's own clean-up between listing and now


def _below(prefix: Key, folder: Path) -> list[tuple[Key, Path]]:
    found: list[tuple[Key, Path]] = []
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(root, name)
            if path.is_file() and is_utf8(name) and is_utf8(root):
                found.append((Key(f"{prefix}/{path.relative_to(folder).as_posix()}"), path))
    return found


def _matches(path: str, pattern: str) -> bool:
    return fnmatch(path, pattern) or fnmatch(path.rsplit("/", 1)[-1], pattern) or path.startswith(pattern.rstrip("/*") + "/")
