"""Which settings hold? One frozen Config, read once, validated once, passed down; nobody else reads the environment.

Settings come from `config.yaml` in the home folder and from environment variables `TRAINMASTER_<SETTING>`; the latter win.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, ValidationError, convert

from trainmaster.errors import InvalidConfig


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
    #: how often a runner says that it lives
    heartbeat_s: float = 5.0
    #: how long a heartbeat gives the right to commit
    attempt_lease_s: float = 60.0
    #: how often a job is looked at when nothing wakes us
    look_s: float = 2.0
    #: how long the background driver stays when nothing is left to do
    driver_idle_s: float = 2.0

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
    home = Path(environ.get("TRAINMASTER_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".trainmaster").absolute()
    values: dict[str, object] = {**_from_file(home / "config.yaml"), "home": str(home)}
    for name in Config.__struct_fields__:
        text = environ.get(f"TRAINMASTER_{name.upper()}")
        if text is not None and name != "home":
            values[name] = text
    try:
        config = convert(values, Config, strict=False)
    except ValidationError as error:
        known = ", ".join(Config.__struct_fields__)
        raise InvalidConfig(
            f"a setting is wrong: {error}", hint=f"settings: {known}; in {home / 'config.yaml'} or TRAINMASTER_*"
        ) from error
    for name in ("heartbeat_s", "attempt_lease_s", "look_s"):
        if getattr(config, name) <= 0:
            raise InvalidConfig(f"{name} must be more than 0", hint=f"found {getattr(config, name)}")
    if config.heartbeat_s * 2 > config.attempt_lease_s:
        raise InvalidConfig("attempt_lease_s must be at least twice heartbeat_s", hint="or every late heartbeat suspends commits")
    return config


def _from_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} cannot be read: {error}") from error
    import yaml

    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{path} is not YAML: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise InvalidConfig(f"{path} must hold settings, one `name: value` a line")
    return loaded
