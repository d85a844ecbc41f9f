"""Who submits, from where, and with which Python?"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from trainmaster.core.job import Origin
from trainmaster.errors import Refused


def find_origin(environ: Mapping[str, str], folder: Path, version: str) -> Origin:
    """The submitter as the record will name it."""
    return Origin(
        user=user_name(),
        host=os.uname().nodename,
        folder=str(folder),
        python=find_python(environ),
        version=version,
    )


def user_name() -> str:
    """The name this process's user has on this machine."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def find_python(environ: Mapping[str, str]) -> str:
    """The active virtual environment, or `python` on the PATH; never our own, unless that is the active one."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = environ.get(variable)
        if active and os.access(python := os.path.join(active, "bin", "python"), os.X_OK):
            return python
    own = os.path.realpath(os.path.join(sys.prefix, "bin"))
    folders = [f for f in environ.get("PATH", os.defpath).split(os.pathsep) if f]
    others = os.pathsep.join(f for f in folders if os.path.realpath(f) != own or sys.prefix == sys.base_prefix)
    for name in ("python", "python3"):
        found = shutil.which(name, path=others)
        if found is not None:
            return found
    raise Refused("no `python` was found on your PATH", hint="activate the virtual environment of your project")
