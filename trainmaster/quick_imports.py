"""How do we import msgspec for half the price?

msgspec takes two names from typing_extensions when it is there, and that import costs as much as msgspec itself. From Python 3.11
on typing has both names, so each entry point lets msgspec look there (`python -m bench help` measures the start of a command).
"""

from __future__ import annotations

import sys


def import_msgspec() -> None:
    """Import msgspec without typing_extensions; whoever wants that later gets the real one."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]
