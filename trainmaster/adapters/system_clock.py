"""What time is it here?"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Return after about `seconds`."""
        await asyncio.sleep(seconds)
