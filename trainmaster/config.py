"""Which settings hold? One frozen Config, read once, validated once, passed down; nobody else reads the environment.

Settings come from `config.yaml` in the home folder and from environment variables `TRAINMASTER_<SETTING>`; the latter win.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path

from msgspec import Struct

from trainmaster.errors import InvalidConfig, InvalidSpec

_PREFIX = "TRAINMASTER_"
_FILE_BYTES_MAX = 1 << 20


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting there is."""

    #: folder that holds all state
    home: str
    #: address of the object store; default: the folder `store` in the home folder
    store: str = ""
    #: slots of this machine; default: what it has
    cpus: float | None = None
    memory: int | None = None
    gpus: int | None = None
    #: largest source folder that is packed
    source_bytes_max: int = 500_000_000
    #: how many bytes of fetched inputs are kept for later jobs; what was not used for longest goes first
    inputs_bytes_max: int = 50_000_000_000
    #: how often a runner says that it lives
    heartbeat_s: float = 5.0
    #: how long a heartbeat gives the right to commit
    attempt_lease_s: float = 60.0
    #: how often a job is looked at when nothing wakes us
    look_s: float = 2.0
    #: how long the background driver stays when nothing is left to do
    driver_idle_s: float = 2.0
    #: how long a command waits for a database that somebody else writes to
    database_wait_s: float = 30.0
    #: jobs that finished so long ago are pruned, once a day; default: never. In the file also `retention: {older_than: 30d}`
    retention_older_than: float | None = None
    #: whether what is pruned so keeps its record, story, metrics and model. In the file also `retention: {keep_models: true}`
    retention_keep_models: bool = True
    #: machines of the simulated fleet, each with one CPU
    simulated_machines: int = 4
    #: how long a simulated machine takes to boot, about
    simulated_boot_s: float = 2.0
    #: how long a job's first simulated machine runs before it is taken back, about; each later one lives twice as long; 0: for ever
    simulated_preempt_s: float = 20.0
    #: how long it has between the notice (SIGTERM) and the end; 0: there is no notice
    simulated_notice_s: float = 5.0

    @property
    def home_path(self) -> Path:
        """The home folder."""
        return Path(self.home)

    @property
    def store_url(self) -> str:
        """Where the object store is."""
        return self.store or str(self.home_path / "store")


def read_config(environ: Mapping[str, str]) -> Config:
    """The settings, or InvalidConfig naming the one that is wrong."""
    home = _home(environ)
    file = home / "config.yaml"
    values: dict[str, object] = {}
    for name, value in _flattened(_from_file(file), file).items():
        if name not in _KINDS:
            hint = "Set TRAINMASTER_HOME instead." if name == "home" else f"Settings: {', '.join(_KINDS)}."
            raise InvalidConfig(f"{file}: {name} is not a setting{_nearest(name)}", hint=hint)
        if value is not None:
            values[name] = _fitted(name, value, f"{file}: {name}", home)
    for variable in sorted(environ):
        name = variable.removeprefix(_PREFIX).lower()
        if variable.startswith(_PREFIX) and name in _KINDS and environ[variable]:
            values[name] = _fitted(name, environ[variable], variable, Path.cwd())
        elif variable.startswith(_PREFIX) and name not in _KINDS and name != "home":
            _refuse_misspelt(variable, name)
    config = Config(home=str(home), **values)  # type: ignore[arg-type]  # each was fitted to its field
    if config.heartbeat_s * 2 > config.attempt_lease_s:
        raise InvalidConfig(
            f"attempt_lease_s is {config.attempt_lease_s:g}, less than twice heartbeat_s, which is {config.heartbeat_s:g}",
            hint="With so short a lease each late heartbeat suspends commits; make it at least twice as long.",
        )
    return config


def _home(environ: Mapping[str, str]) -> Path:
    try:
        home = environ.get(f"{_PREFIX}HOME") or Path(environ.get("HOME") or "~").expanduser() / ".trainmaster"
    except RuntimeError as error:
        raise InvalidConfig("no home folder was found for this user", hint="Set TRAINMASTER_HOME to a folder.") from error
    path = Path(home).absolute()
    if path.exists() and not path.is_dir():
        raise InvalidConfig(f"TRAINMASTER_HOME: {path} is not a folder", hint="Set it to a folder, or to one that is to be made.")
    return path


def _from_file(path: Path) -> dict[str, object]:
    try:
        with open(path, "rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1).decode()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not UTF-8 text", hint="Save it as UTF-8.") from error
    except OSError as error:
        raise InvalidConfig(
            f"{path} cannot be read: {error.strerror}", hint="Settings are a file with `name: value` lines."
        ) from error
    from trainmaster.spec.text import load_yaml

    if not text.strip() or all(line.lstrip().startswith("#") for line in text.splitlines() if line.strip()):
        return {}
    try:
        return load_yaml(text, str(path))
    except InvalidSpec as error:
        raise InvalidConfig(error.sentence, hint="Settings are `name: value` lines, such as `cpus: 4`.") from error


def _flattened(given: dict[str, object], file: Path) -> dict[str, object]:
    """`retention: {older_than: 30d}` is `retention_older_than: 30d`."""
    section = given.pop("retention", None)
    if section is None:
        return given
    if not isinstance(section, dict):
        raise InvalidConfig(
            f"{file}: retention: wanted a mapping", hint="such as `retention: {older_than: 30d, keep_models: true}`"
        )
    for name, value in section.items():
        if f"retention_{name}" in given:
            raise InvalidConfig(f"{file}: retention.{name} is given twice")
        given[f"retention_{name}"] = value
    return given


def _fitted(name: str, value: object, where: str, folder: Path) -> object:
    """The value as its field wants it; `where` says where it was given."""
    if name == "store" and isinstance(value, str):
        # Whoever reads it next may stand in another folder.
        return value if "://" in value else os.path.normpath(folder / os.path.expanduser(value))
    wanted, parse = _KINDS[name]
    if isinstance(value, bool) and parse is _switch:
        return value
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        parsed = parse(str(value))
        if parsed is not None:
            return parsed
    from trainmaster.spec.problems import shown

    raise InvalidConfig(f"{where}: found {shown(value)}, wanted {wanted}")


def _refuse_misspelt(variable: str, name: str) -> None:
    """Other programs may use our prefix; a word that is nearly a setting is a mistake."""
    near = _nearest(name)
    if near:
        raise InvalidConfig(
            f"{variable} is not a setting{near}", hint=f"Settings: {', '.join(_PREFIX + n.upper() for n in _KINDS)}."
        )


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, _KINDS, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _size(text: str) -> int | None:
    from trainmaster.spec.units import parse_size

    return parse_size(text) or None


def _seconds(text: str) -> float | None:
    from trainmaster.spec.units import parse_duration

    return _number(text) or parse_duration(text) or None


def _seconds_from_0(text: str) -> float | None:
    """Like `_seconds`; 0 switches something off."""
    return 0.0 if text.strip() in {"0", "0.0", "0s"} else _seconds(text)


def _switch(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in {"true", "yes", "on", "1"} else False if word in {"false", "no", "off", "0"} else None


def _machines(text: str) -> int | None:
    """As many as a laptop could pretend to have."""
    count = _count(text)
    return count if count is not None and 0 < count <= _MACHINES_MAX else None


_MACHINES_MAX = 10_000
_DURATION_FROM_0 = "a duration, 0 or more: seconds, or text such as 5s, 1m30s"
_DURATION = "a duration, more than 0: seconds, or text such as 5s, 1m30s"
_SIZE = "a size, more than 0: bytes, or text such as 500MB, 16GiB"
#: setting → what is wanted, and text → value or None
_KINDS: dict[str, tuple[str, Callable[[str], float | int | str | None]]] = {
    "store": ("the address of an object store, such as a folder or s3://bucket/prefix", str),
    "cpus": ("a number, more than 0", _number),
    "memory": (_SIZE, _size),
    "gpus": ("a whole number, 0 or more", _count),
    "source_bytes_max": (_SIZE, _size),
    "inputs_bytes_max": (_SIZE, _size),
    "heartbeat_s": (_DURATION, _seconds),
    "attempt_lease_s": (_DURATION, _seconds),
    "look_s": (_DURATION, _seconds),
    "driver_idle_s": (_DURATION, _seconds),
    "database_wait_s": (_DURATION, _seconds),
    "retention_older_than": ("a duration, more than 0: seconds, or text such as 30d, 12h", _seconds),
    "retention_keep_models": ("true or false", _switch),
    "simulated_machines": (f"a whole number from 1 to {_MACHINES_MAX}", _machines),
    "simulated_boot_s": (_DURATION_FROM_0, _seconds_from_0),
    "simulated_preempt_s": (_DURATION_FROM_0, _seconds_from_0),
    "simulated_notice_s": (_DURATION_FROM_0, _seconds_from_0),
}
