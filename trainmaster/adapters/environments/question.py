"""What exactly is asked for? Every byte that decides which packages are installed, and a short name for all of it.

The same question finds the environment that answered it before, without calling anybody; so nothing that matters may be missing
here, and no credential may be in it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from trainmaster.adapters.environments.shelf import mark_of
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, Secrets
from trainmaster.spec.environment import LineKind, references, requirement_lines, without_user
from trainmaster.spec.job_spec import Environment

#: what an active environment of the submitter, or of ours, would tell a tool about
FOREIGN = (
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_REQUIRE_HASHES",
    "UV_OUTPUT_FORMAT",
    "UV_SYSTEM_PYTHON",
)
#: settings of uv in the submitter's environment that do not decide what is chosen; every other one is part of the question
_DECIDES_NOTHING = re.compile(
    "UV_(CACHE_DIR|NO_CACHE|CONCURRENT_.*|HTTP_.*|REQUEST_TIMEOUT|LINK_MODE|COMPILE_BYTECODE.*|NO_PROGRESS|LOG_CONTEXT|STACK_SIZE"
    "|KEYRING_PROVIDER|CREDENTIALS_DIR|INDEX_.*_(USERNAME|PASSWORD)|PUBLISH_.*|NATIVE_TLS|SYSTEM_CERTS|INSECURE_.*"
    "|TOOL_.*|PYTHON_.*_DIR|PYTHON_DOWNLOADS.*|INSTALL_DIR|INSTALLER_.*|RUN_.*|SHOW_.*|NO_ENV_FILE|ENV_FILE|GITHUB_TOKEN)"
)
#: those whose value names files
_NAME_FILES = ("UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD_CONSTRAINT", "UV_EXCLUDE")
_FILE_BYTES_MAX = 32 << 20
#: a project whose requirements stand in other files of its folder
_LIES_BESIDE = re.compile(r"^\s*dynamic\s*=\s*\[[^\]]*[\"']dependencies[\"']|tool\.uv\.sources", re.MULTILINE)
#: files that are no requirement lists themselves
PROJECT_FILES = ("pyproject.toml", "uv.lock", "pylock.toml")


class Question(Struct, frozen=True, kw_only=True):
    """What a job asks for, and where it stands."""

    environment: Environment
    #: the code folder: files are named relative to it
    folder: Path
    #: the submitter's interpreter, for jobs that name none
    python: str
    #: the submitter's environment
    base: Mapping[str, str]
    #: the snapshot of the code folder; empty: the folder itself
    code: str = ""
    #: key of a lock in the store that is installed as it is
    lock: str = ""
    #: wheel folder in the store
    wheelhouse: str = ""

    @property
    def file(self) -> str:
        """The file that lists the requirements; empty: there is none."""
        given = self.environment.requirements
        return given if isinstance(given, str) else ""

    @property
    def secrets(self) -> Secrets:
        """What the references in it stand for."""
        environment = self.environment
        texts = [environment.index or "", *environment.extra_indexes]
        texts += environment.requirements if isinstance(environment.requirements, list) else self._texts().values()
        return Secrets({name: self.base[name] for text in texts for name in references(text) if name in self.base})

    def _texts(self) -> dict[str, str]:
        return read_files(self.folder, self.file) if self.file else {}

    @property
    def installs_from_folder(self) -> bool:
        """Whether packages lie in the code folder itself; then they change with it."""
        given = self.environment.requirements
        texts = ["\n".join(given)] if isinstance(given, list) else self._texts().values()
        if self.file.endswith(PROJECT_FILES):
            return any(_LIES_BESIDE.search(text) for text in texts)
        return LineKind.IN_FOLDER in {line.kind for text in texts for line in requirement_lines(text)}

    @property
    def names_packages(self) -> bool:
        """Whether something is to be installed on every machine; a marker may leave out the rest."""
        given = self.environment.requirements
        texts = ["\n".join(given)] if isinstance(given, list) else self._texts().values()
        if self.file.endswith(PROJECT_FILES):
            return False
        lines = [line for text in texts for line in requirement_lines(text) if line.kind in {LineKind.OTHER, LineKind.IN_FOLDER}]
        return any(";" not in line.value and not line.value.startswith("-") for line in lines)

    @property
    def name(self) -> str:
        """A hash of all that decides the answer."""
        environment = self.environment
        files = {} if self.lock else self._texts()
        if environment.conda is not None and not self.lock:
            files = {environment.conda: read_text(self.folder, environment.conda)}
        files |= _settings_beside(self.folder) | _settings_of_user(self.base) | _named_by_settings(self.folder, self.base)
        asked = {
            "v": 2,
            "environment": [environment.python, environment.requirements, environment.conda, environment.index],
            "more": [environment.extra_indexes, environment.wheels is not None, self.lock, self.wheelhouse],
            "files": sorted(files.items()),
            "settings": sorted((name, without_user(self.base[name])) for name in self.base if _decides(name)),
            "code": self.code if self.installs_from_folder else "",
            "python": None if environment.python or environment.conda or self.lock else mark_of(self.python),
            "machine": [os.uname().sysname, os.uname().machine],
            "path": self.base.get("PATH", "") if environment.conda else "",
        }
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:32]


def _settings_beside(folder: Path) -> dict[str, str]:
    """Files of the code folder in which uv looks for its settings."""
    found = {}
    for name in ("uv.toml", "pyproject.toml"):
        with suppress(OSError, UnicodeDecodeError):
            text = (folder / name).read_text()
            if name == "uv.toml" or "tool.uv" in text:
                found[f"settings in {name}"] = text
    return found


def _decides(name: str) -> bool:
    return name.startswith("UV_") and name not in FOREIGN and not _DECIDES_NOTHING.fullmatch(name)


def _settings_of_user(base: Mapping[str, str]) -> dict[str, str]:
    """The files with the user's settings for all projects; uv reads them unless told not to, or told of another."""
    if base.get("UV_NO_CONFIG"):
        return {}
    folder = base.get("XDG_CONFIG_HOME") or os.path.join(base.get("HOME") or "/nonexistent", ".config")
    given = base.get("UV_CONFIG_FILE")
    paths = [given] if given else [os.path.join(folder, "uv", "uv.toml"), "/etc/xdg/uv/uv.toml", "/etc/uv/uv.toml"]
    return {f"settings in {path}": text for path in paths if (text := _text_at(Path(path)))}


def _named_by_settings(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Files that settings name; spaces part their names, unless a backslash stands before them."""
    named = [path for name in _NAME_FILES for path in re.split(r"(?<!\\)\s+", base.get(name, "")) if path]
    paths = [path.replace("\\ ", " ") for path in named]
    return {f"named {path}": text for path in paths if (text := _text_at(folder / path))}


def _text_at(path: Path) -> str:
    """What decides in a file, without passwords; empty where there is none."""
    with suppress(OSError, UnicodeDecodeError):
        return without_user(path.read_text())
    return ""


def read_files(folder: Path, name: str) -> dict[str, str]:
    """A file of requirements and all that it names, by path from the folder."""
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = read_text(folder, path)
        if os.path.basename(path) == "uv.lock":
            waiting.append(os.path.join(os.path.dirname(path), "pyproject.toml"))
        if not path.endswith(".toml") and os.path.basename(path) != "uv.lock":
            beside = os.path.dirname(path)
            lines = requirement_lines(found[path])
            waiting += [os.path.normpath(os.path.join(beside, line.value)) for line in lines if line.kind is LineKind.INCLUDE]
    return found


def read_text(folder: Path, name: str) -> str:
    """A file of the code folder; EnvironmentTrouble when it is not there, or not in it."""
    path = folder / name
    if not os.path.realpath(path).startswith(f"{os.path.realpath(folder)}{os.sep}"):
        raise EnvironmentTrouble(f"{name} lies outside the source folder", hint="copy it into the source folder")
    try:
        with open(path, "rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise EnvironmentTrouble(f"{name} is larger than 32 MiB")
        return text.decode()
    except UnicodeDecodeError as error:
        raise EnvironmentTrouble(f"{name} is not UTF-8 text") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise EnvironmentTrouble(f"{name} is not a file in {folder}") from error
    except OSError as error:
        raise EnvironmentTrouble(f"{name} cannot be read: {error.strerror}") from error
