"""How is a conda environment made? By micromamba, mamba or conda, whichever is installed; from a file, or from a lock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters.environments.lock_file import Lock, LockHead, conda_body
from trainmaster.adapters.environments.pythons import describe_python
from trainmaster.adapters.environments.tool import Tools
from trainmaster.adapters.environments.trouble import EnvironmentTrouble

TOOLS = ("micromamba", "mamba", "conda")
#: what pip put there, one line each; conda's own packages have another installer
_BY_PIP = (
    "import importlib.metadata as m\n"
    "for d in m.distributions():\n"
    "    if (d.read_text('INSTALLER') or '').strip() in ('pip', 'uv'):\n"
    "        print(d.metadata['Name'] + '==' + d.version)"
)


class Kit(Struct, frozen=True, kw_only=True):
    """What a conda environment is made with."""

    tools: Tools
    environ: Mapping[str, str]
    folder: Path
    uv: str


def find_conda(environ: Mapping[str, str]) -> str | None:
    """The tool that is installed; None when none is."""
    for variable in ("MAMBA_EXE", "CONDA_EXE"):
        if os.access(environ.get(variable) or "/nonexistent", os.X_OK):
            return environ[variable]
    return next((found for name in TOOLS if (found := shutil.which(name, path=environ.get("PATH", os.defpath)))), None)


def create(kit: Kit, place: Path, lock: Lock | None, file: str) -> Lock:
    """Make the environment; what it holds."""
    tool = find_conda(kit.environ)
    if tool is None:
        raise EnvironmentTrouble(f"none of {', '.join(TOOLS)} is installed on this machine")
    place.rmdir()  # conda wants to make it itself
    if lock is not None:
        explicit = place.parent / "explicit.txt"
        explicit.write_text(lock.body)
        words = [tool, "create", "--yes", "--prefix", str(place), "--file", str(explicit)]
    elif "micromamba" in os.path.basename(tool):
        words = [tool, "create", "--yes", "--prefix", str(place), "--file", file]
    else:
        words = [tool, "env", "create", "--prefix", str(place), "--file", file]
    kit.tools.call("the conda environment could not be made", words, kit.environ, kit.folder)
    if lock is not None and lock.pip_lines:
        words = [kit.uv, "pip", "install", "--no-deps", "--python", str(place / "bin" / "python"), "--", *lock.pip_lines]
        kit.tools.call("the packages could not be installed", words, kit.environ, kit.folder)
    return lock if lock is not None else _lock_of(kit, tool, place)


def _lock_of(kit: Kit, tool: str, place: Path) -> Lock:
    how = ["env", "export", "--explicit", "--md5"] if "micromamba" in os.path.basename(tool) else ["list", "--explicit", "--md5"]
    words = [tool, *how, "--prefix", str(place)]
    explicit = kit.tools.call("the conda environment could not be read", words, kit.environ, kit.folder)
    python = place / "bin" / "python"
    if not python.exists():
        return Lock(head=LockHead(kind="conda"), body=conda_body(explicit, []))
    facts = describe_python(kit.tools, str(python))
    by_pip = kit.tools.call("its packages could not be listed", [str(python), "-I", "-c", _BY_PIP], kit.environ, kit.folder)
    head = LockHead(kind="conda", python=facts.words, platform=facts.platform)
    return Lock(head=head, body=conda_body(explicit, sorted(by_pip.splitlines())))


def package_count(place: Path) -> int:
    """How many packages conda put there, and pip."""
    return sum(1 for _ in place.glob("conda-meta/*.json")) + sum(
        1 for _ in place.glob("lib/python*/site-packages/*.dist-info/RECORD")
    )
