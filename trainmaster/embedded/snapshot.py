"""What of a source folder goes into the store with a job? Its code, and the wheels of its environment."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.core.job import Code
from trainmaster.spec import layout
from trainmaster.spec.job_spec import JobSpec

if TYPE_CHECKING:
    from trainmaster.adapters.environments.submission import SubmittedEnvironment
    from trainmaster.embedded.session import Embedded

Tell = Callable[[str, int, int], None]


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was kept of a source folder, and what the submitter should know about it."""

    code: Code
    #: name of the wheels that were staged
    wheelhouse: str = ""
    left_out: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def take_snapshot(embedded: Embedded, spec: JobSpec, folder: Path, environ: Mapping[str, str], progress: Tell) -> Snapshot:
    """Keep in the store what the job needs of this machine."""
    from trainmaster.adapters.environments.submission import SubmittedEnvironment

    asked = SubmittedEnvironment(spec.environment, folder, environ)
    asked.refuse_impossible(embedded.config.home_path)
    if spec.in_place:
        snapshot = Snapshot(code=Code(folder=str(folder), in_place=True))
    else:
        snapshot = _packed(embedded, folder, environ, asked, progress)
    return replace(snapshot, wheelhouse=asked.stage_wheels(embedded.store, progress), notes=(*snapshot.notes, *asked.notes()))


def _packed(embedded: Embedded, folder: Path, environ: Mapping[str, str], asked: SubmittedEnvironment, progress: Tell) -> Snapshot:
    from trainmaster.adapters.source_archive import pack
    from trainmaster.adapters.source_folder import list_source

    listing = list_source(
        folder,
        user_home=Path(environ.get("HOME") or "/nonexistent"),
        trainmaster_home=embedded.config.home_path,
        size_limit_bytes=embedded.config.source_bytes_max,
    )
    asked.refuse_left_out(file.path for file in listing.files)
    archive = _packing_place(embedded)
    done = 0

    def packed_bytes(count: int) -> None:
        nonlocal done
        done += count
        progress("packing", done, listing.total_bytes)

    try:
        packed = pack(listing, folder, archive, packed_bytes)
        waits = partial(progress, "waiting for who keeps house", 0, packed.size_bytes)
        embedded.held.enter_context(embedded.home.submitting(waits))
        embedded.store.move_file(layout.code(packed.sha256), archive)
    finally:
        archive.unlink(missing_ok=True)
    code = Code(
        sha256=packed.sha256,
        size_bytes=packed.size_bytes,
        files=len(listing.files),
        commit=listing.commit,
        dirty=listing.is_dirty,
        folder=str(folder),
        left_out=[item.path for item in listing.left_out],
    )
    return Snapshot(code=code, left_out=tuple((item.path, item.why) for item in listing.left_out), notes=listing.notes)


def _packing_place(embedded: Embedded) -> Path:
    """A new file to pack into. Whoever was killed while it packed has left one: a day later it goes."""
    folder = embedded.config.home_path / "packing"
    folder.mkdir(parents=True, exist_ok=True)
    day_ago_s = (embedded.ports.clock.now() - timedelta(days=1)).timestamp()
    for file in folder.iterdir():
        with suppress(FileNotFoundError):  # others are done with theirs at any moment
            if file.stat().st_mtime < day_ago_s:
                file.unlink()
    return folder / f"{secrets.token_hex(8)}.tar.zst"
