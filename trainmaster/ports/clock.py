"""What do we need of time?"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The only source of time in the shell."""

    def now(self) -> datetime:
        """The time, in UTC. It may go backwards; whoever stores times must bear that."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after about `seconds`; may be cancelled."""
        ...
