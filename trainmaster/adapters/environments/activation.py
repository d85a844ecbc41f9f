"""What does an active environment look like from inside?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: what another active environment left behind
_FOREIGN = frozenset({"PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT"})


def activated(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The variables of a shell in which the environment was activated."""
    kept = {name: value for name, value in base.items() if name not in _FOREIGN}
    name = "CONDA_PREFIX" if (folder / "conda-meta").is_dir() else "VIRTUAL_ENV"
    return {**kept, name: str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{base.get('PATH', os.defpath)}"}
