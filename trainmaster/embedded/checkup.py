"""What does `doctor` look at? The installation, this machine, and the home folder, as far as it gets."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping

from trainmaster.config import read_config
from trainmaster.embedded.opening import opened
from trainmaster.embedded.session import Embedded
from trainmaster.errors import TrainmasterError
from trainmaster.spec import layout


async def look_around(environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """What `doctor` finds: name, ok | warning | wrong, and a sentence. It looks as far as it gets; others pick up what is left."""
    from trainmaster import __version__
    from trainmaster.adapters import host
    from trainmaster.adapters.submitter import find_python

    found = [("version", "ok", f"trainmaster {__version__}, Python {sys.version.split()[0]}")]
    try:
        found.append(("interpreter", "ok", f"jobs run with {find_python(environ)}"))
    except TrainmasterError as error:
        found.append(("interpreter", "wrong", _in_words(error)))
    group = host.make_cgroup("doctor")
    if group is not None:
        host.end_cgroup(group)
    ends = "by cgroup" if group is not None else "by adopting orphans; no cgroup can be made here"
    found.append(("processes", "ok", f"a job's processes are ended {ends}"))
    found.extend(("system", "warning", text) for text in host.limits())
    try:
        async with opened(read_config(environ)) as embedded:
            found.extend(await _look_inside(embedded))
            await embedded.ensure_driven()
    except TrainmasterError as error:
        found.append(("home", "wrong", _in_words(error)))
    return found


async def _look_inside(embedded: Embedded) -> list[tuple[str, str, str]]:
    from shutil import disk_usage

    home = embedded.config.home
    free = disk_usage(home).free
    found = [("home", "ok" if free > 1 << 30 else "warning", f"{home}, {free / 1e9:.1f} GB free")]
    capacity = await embedded.this_machine.capacity()
    gpus = f"{len(capacity.gpus)} GPU" if capacity.gpus else "no GPU"
    found.append(("machine", "ok", f"{capacity.cpus:g} CPU, {capacity.memory / 2**30:.1f} GiB, {gpus}"))
    try:
        key = layout.Key(f"doctor/{secrets.token_hex(8)}")
        works = embedded.store.put_if_absent(key, b"1") and not embedded.store.put_if_absent(key, b"2")
        embedded.store.delete_prefix(layout.Key("doctor"))
        says = f"{embedded.store.url}; conditional create {'works' if works else 'fails'}"
        found.append(("store", "ok" if works else "wrong", says))
    except TrainmasterError as error:
        found.append(("store", "wrong", _in_words(error)))
    unfinished = await embedded.ports.database.unfinished()
    found.append(("jobs", "ok", f"{len(unfinished)} unfinished"))
    return found


def _in_words(error: TrainmasterError) -> str:
    return f"{error.sentence}: {error.hint}" if error.hint else error.sentence
