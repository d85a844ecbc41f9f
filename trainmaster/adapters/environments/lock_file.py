"""What does a lock say? Packages in the format of requirement files, below one line about where it was made."""

from __future__ import annotations

import hashlib
import tomllib

import msgspec
from msgspec import Struct

from trainmaster.adapters.environments.trouble import EnvironmentTrouble

_MARK = "# trainmaster: "
_PIP_MARK = "# pip "


class LockHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a lock was made, as far as it matters for building it again."""

    #: ``uv`` or ``conda``
    kind: str = "uv"
    #: such as ``cpython 3.11.7``
    python: str = ""
    platform: str = ""
    #: wheel folder in the store that some packages come from
    wheelhouse: str = ""
    #: snapshot that some packages lie in
    code: str = ""


class Lock(Struct, frozen=True, kw_only=True):
    """A lock, read."""

    head: LockHead
    body: str

    @property
    def text(self) -> str:
        """As it is kept; the same lock is the same text."""
        return f"{_MARK}{msgspec.json.encode(self.head).decode()}\n{self.body}"

    @property
    def key(self) -> str:
        """The name of the environment: what it holds, for which interpreter, on which platform."""
        return key_of(self.text.encode())

    @property
    def pip_lines(self) -> list[str]:
        """What pip added to a conda environment."""
        return [line.removeprefix(_PIP_MARK) for line in self.body.splitlines() if line.startswith(_PIP_MARK)]


def key_of(text: bytes) -> str:
    """The name under which a lock of uv is kept: whoever reads it can tell that it is the one."""
    return hashlib.sha256(text).hexdigest()[:32]


def parse_lock(text: str, name: str) -> Lock:
    """A lock that was kept."""
    first, _, body = text.partition("\n")
    try:
        if not first.startswith(_MARK):
            raise ValueError("it does not begin as one")
        return Lock(head=msgspec.json.decode(first.removeprefix(_MARK), type=LockHead), body=body)
    except ValueError as error:
        raise EnvironmentTrouble(f"the lock {name[:12]} cannot be read: {error}") from error


def conda_body(explicit: str, pip_packages: list[str]) -> str:
    """The lock of a conda environment: addresses of its packages, and what pip added."""
    return "".join([*(f"{_PIP_MARK}{line}\n" for line in pip_packages), explicit.strip(), "\n"])


def requirements_of_pylock(text: str, name: str) -> str:
    """What a pylock.toml holds, as requirements with hashes."""
    try:
        packages = tomllib.loads(text)["packages"]
        return "".join(sorted(_pylock_line(package) for package in packages))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentTrouble(f"{name} is no pylock file: {error}") from error


def _pylock_line(package: dict[str, object]) -> str:
    marker = f" ; {package['marker']}" if package.get("marker") else ""
    files = [*_tables(package.get("wheels")), *_tables(package.get("sdist"))]
    if package.get("version") and files:
        hashes = sorted({f"--hash={kind}:{value}" for file in files for kind, value in dict(file["hashes"]).items()})  # type: ignore[call-overload]
        return " \\\n    ".join([f"{package['name']}=={package['version']}{marker}", *hashes]) + "\n"
    for source in _tables(package.get("archive")):
        if "url" in source:
            return f"{package['name']} @ {source['url']}{marker}\n"
    for source in _tables(package.get("vcs")):
        return f"{package['name']} @ {source['type']}+{source['url']}@{source['commit-id']}{marker}\n"
    raise KeyError(f"{package.get('name')} lies in a folder")


def _tables(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else [value] if isinstance(value, dict) else []
