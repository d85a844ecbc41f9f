"""Which interpreter is meant by a version, and what is it? Only what is installed on the machine; nothing is downloaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from trainmaster.adapters.environments.tool import Tools, find_uv, tool_environ
from trainmaster.adapters.environments.trouble import EnvironmentTrouble

_DESCRIBE = (
    "import json, platform, sys, sysconfig; "
    "print(json.dumps({'version': platform.python_version(), 'implementation': sys.implementation.name, "
    "'platform': '-'.join(filter(None, [sysconfig.get_platform(), platform.libc_ver()[0]])), "
    "'path': getattr(sys, '_base_executable', None) or sys.executable}))"
)


class PythonFacts(Struct, frozen=True, kw_only=True):
    """An interpreter as it describes itself."""

    version: str
    implementation: str
    platform: str
    #: the interpreter itself, not a virtual environment's name for it
    path: str

    @property
    def words(self) -> str:
        """Implementation and version."""
        return f"{self.implementation} {self.version}"


def find_python(tools: Tools, request: str, base: Mapping[str, str]) -> str:
    """The path of an installed interpreter; EnvironmentTrouble naming those there are."""
    environ = _search_environ(base)
    said = tools.ask([find_uv(), "python", "find", "--system", "--no-project", request], environ, Path("/"), shows_output=False)
    if said.code == 0 and said.output.strip():
        return said.output.strip().splitlines()[-1]
    there = ", ".join(_versions(tools, environ)) or "none"
    raise EnvironmentTrouble(
        f"Python {request} is not installed on this machine; there are: {there}",
        hint=f"ask for one of these, or install it: uv python install {request}",
    )


def describe_python(tools: Tools, python: str) -> PythonFacts:
    """What an interpreter says about itself."""
    if not os.path.exists(python):
        raise EnvironmentTrouble(f"the Python {python} is not there any more", hint="submit again with a Python that is there")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    said = tools.ask([python, "-I", "-c", _DESCRIBE], environ, Path("/"), shows_output=False)
    if said.code != 0:
        raise EnvironmentTrouble(f"the Python {python} does not work: {said.errors.strip()[-300:]}")
    return msgspec.json.decode(said.output, type=PythonFacts)


def _search_environ(base: Mapping[str, str]) -> dict[str, str]:
    """What pyenv installed is found where it lies; its stand-ins on the PATH fail for every version but one."""
    root = base.get("PYENV_ROOT") or os.path.join(base.get("HOME", "/"), ".pyenv")
    folders = [folder for folder in base.get("PATH", os.defpath).split(os.pathsep) if not folder.rstrip("/").endswith("/shims")]
    versions = sorted(Path(root, "versions").glob("*/bin"), reverse=True)
    return tool_environ(base, {"PATH": os.pathsep.join([*folders, *map(str, versions)])})


def _versions(tools: Tools, environ: Mapping[str, str]) -> list[str]:
    words = [find_uv(), "python", "list", "--only-installed", "--output-format", "json"]
    said = tools.ask(words, environ, Path("/"), shows_output=False)
    try:
        found = {str(one["version"]) for one in json.loads(said.output or "[]")}
    except (ValueError, KeyError, TypeError):
        return []
    return sorted(found, key=lambda version: [int(part) if part.isdigit() else 0 for part in version.split(".")])
