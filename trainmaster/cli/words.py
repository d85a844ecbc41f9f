"""How do command-line words become values? Shared by the commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import click

from trainmaster.cli import render
from trainmaster.embedded import Embedded, opened
from trainmaster.errors import DatabaseUnavailable, InvalidSpec

T = TypeVar("T")


def with_embedded(work: Callable[[Embedded], Awaitable[T]]) -> T:
    """Open the home folder, do the work, and see to it that unfinished jobs are driven."""

    async def inside() -> T:
        async with opened() as embedded:
            result = await work(embedded)
            try:
                await embedded.ensure_driven()
            except DatabaseUnavailable as error:
                # The answer is given; the next command will see to the jobs.
                render.note(f"unfinished jobs are not looked after for now: {error.sentence}", "yellow")
            return result

    return run(inside())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end."""
    return asyncio.run(coroutine)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def split_pairs(words: tuple[str, ...], flag: str) -> dict[str, str]:
    """`K=V` words as a mapping."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidSpec(flag, f'found "{word}", wanted NAME=VALUE')
        found[name] = value
    return found
