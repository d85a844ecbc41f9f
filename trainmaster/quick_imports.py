"""How do we import two large modules for less?

msgspec takes two names from typing_extensions when it is there, and that import costs as much as msgspec itself; from Python
3.11 on typing has both names. asyncio imports ssl when it is there; a command that talks to a database file and an object store
(which brings its own TLS) never uses it. Each entry point lets them look elsewhere. `python -m bench help submit` measures it.
"""

from __future__ import annotations

import sys
from importlib import import_module


def import_msgspec() -> None:
    """Import msgspec without typing_extensions."""
    _import_without("msgspec", "typing_extensions")


def import_asyncio() -> None:
    """Import asyncio without ssl; for processes that open no TLS connection of their own."""
    _import_without("asyncio", "ssl")


def _import_without(module: str, part: str) -> None:
    """Whoever wants the part later gets the real one."""
    if module in sys.modules or part in sys.modules:
        return
    sys.modules[part] = None  # type: ignore[assignment]
    try:
        import_module(module)
    finally:
        del sys.modules[part]
