"""`diff`: what is not the same in two jobs?"""

from __future__ import annotations

from collections.abc import Sequence

import click

from trainmaster.cli import render
from trainmaster.cli.words import json_option, with_embedded
from trainmaster.core.compare import Difference, FileChange, differences, package_differences
from trainmaster.core.job import JobRecord
from trainmaster.core.submission import environment_key
from trainmaster.embedded import Embedded
from trainmaster.errors import StoreError, UserError
from trainmaster.spec import layout

_LINE_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_LINES_MAX = 2000


@click.command("diff")
@click.argument("one")
@click.argument("other")
@json_option
def diff_command(one: str, other: str, as_json: bool) -> int:  # noqa: FBT001
    """Show what differs between two jobs: parameters, code, results.

    The exit code is 0 whether they differ or not.

    \b
    Examples:
      trainmaster diff sweep-k7q2m last
      trainmaster diff sweep-k7q2m sweep-h3p7w --json
    """

    async def work(embedded: Embedded) -> int:
        left, right = [await embedded.service.get(await embedded.service.resolve(name)) for name in (one, other)]
        found = differences(left, right, embedded.ports.clock.now())
        changes, trouble = _code_changes(embedded, left, right)
        packages = await _package_changes(embedded, left, right)
        if as_json:
            shown = {"differences": _values(found), "packages": _values(packages), "code": changes, "code_unknown": trouble}
            render.json({"one": left.id, "other": right.id, **shown})
        else:
            _print_differences(left, right, found)
            _print_packages(packages)
            _print_code(changes, trouble)
        return 0

    return with_embedded(work)


def _values(found: Sequence[Difference]) -> list[dict[str, str]]:
    return [{"what": d.what, "one": d.one, "other": d.other} for d in found]


async def _package_changes(embedded: Embedded, left: JobRecord, right: JobRecord) -> list[Difference]:
    """Packages whose versions differ, where environments were built for both jobs."""
    keys = [environment_key(job) for job in (left, right)]
    if not all(keys) or keys[0] == keys[1]:
        return []
    locks = [await embedded.ports.store.get(layout.environment_lock(key)) or b"" for key in keys]
    return package_differences(*(lock.decode(errors="replace") for lock in locks))


def _print_packages(found: Sequence[Difference]) -> None:
    if found:
        render.line()
        render.table(("PACKAGE", "", ""), found)


def _code_changes(embedded: Embedded, left: JobRecord, right: JobRecord) -> tuple[list[FileChange] | None, str]:
    """What differs in the code, or why nobody can tell; the rest of the answer is given in any case."""
    try:
        return embedded.code_changes(left.code, right.code), ""
    except (UserError, StoreError) as error:
        return None, error.sentence


def _print_differences(left: JobRecord, right: JobRecord, found: Sequence[Difference]) -> None:
    """Short values side by side, long ones below each other."""
    names = max((len(d.what) for d in found), default=0)
    room = (render.columns() - names - 4) // 2
    short = [d for d in found if max(len(d.one), len(d.other), len(left.id), len(right.id)) <= room and "\n" not in d.one + d.other]
    render.table(("", left.id, right.id), short)
    for what, one, other in (d for d in found if d not in short):
        render.line(render.printable(what))
        render.line(render.styled(f"  - {render.wrapped(one, 4)}", "red"))
        render.line(render.styled(f"  + {render.wrapped(other, 4)}", "green"))


def _print_code(changes: Sequence[FileChange] | None, trouble: str) -> None:
    render.line()
    if changes is None:
        render.line(f"code: {render.wrapped(trouble, 6)}")
        return
    render.line("code: the same" if not changes else f"code: {render.count(len(changes), 'file')} not the same")
    left = _LINES_MAX
    for change in changes:
        if not change.lines:
            render.line(f"{change.kind.value} {render.printable(change.path)} ({change.why_no_lines or 'empty'})")
        for text in change.lines[: max(0, left)]:
            for row in text.split("\n"):
                render.line(render.styled(render.printable(row), _LINE_STYLES.get(row[:1], "")))
        left -= len(change.lines)
    if left < 0:
        render.note(f"{-left} more lines: --json has all")
