"""What do we need of the home folder to keep house? What it holds of a job, who submits right now, and what takes room."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Home(Protocol):
    """The folder that holds all state of one user on one machine."""

    def submitting(self, waits: Callable[[], object] = ...) -> AbstractContextManager[None]:
        """Held from storing a snapshot of code until the job that needs it is remembered. Several may hold it at once.

        `waits` is called when somebody keeps house, and has to be waited for.
        """
        ...

    def alone(self) -> AbstractContextManager[bool]:
        """Whether nobody is submitting now, and nobody begins before the block ends. Waits a moment for those who do."""
        ...

    def unborn(self, older_than_s: float) -> list[str]:
        """Jobs that somebody began to submit or to import, by id; the caller asks which of them are remembered. Repeatable.

        Who was killed while submitting is known by its age, who was killed while importing by its lock.
        """
        ...

    def nobody_imports(self) -> AbstractContextManager[bool]:
        """Whether nobody is importing now, and nobody begins before the block ends. Waits for nobody."""
        ...

    def is_unborn(self, job_id: str, older_than_s: float) -> bool:
        """Whether `unborn` would name this job; asked while nobody imports. Repeatable."""
        ...

    def forget(self, job_id: str) -> None:
        """Remove what the home holds of a job that is gone. Repeatable."""
        ...

    def old_packing(self, older_than_s: float) -> list[tuple[str, int]]:
        """Files somebody was packing when it was killed: name and size. Repeatable."""
        ...

    def drop_packing(self, name: str) -> None:
        """Remove one of them. Repeatable."""
        ...

    def sizes(self) -> dict[str, int]:
        """Bytes in each part of the home that is not the store. Repeatable."""
        ...
