"""Who submits, from where, and with which Python?"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from trainmaster.core.job import Origin
from trainmaster.errors import InvalidSpec, Refused
from trainmaster.spec.job_spec import JobSpec

#: A longer script is not looked into: that would take longer than starting it.
_SCRIPT_BYTES_MAX = 1 << 20
#: Asked only about what our own Python cannot read: theirs may be newer.
_READ_SCRIPT = "import sys, warnings; warnings.simplefilter('ignore'); compile(sys.stdin.buffer.read(), 'script', 'exec')"


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


def refuse_no_script(spec: JobSpec, folder: Path, python: str) -> None:
    """Find out now what would fail in a minute: no script there, or one that is not Python."""
    if not folder.is_dir():
        raise InvalidSpec("source_dir", f"{folder} is not a folder", hint="name the folder your code lies in")
    if spec.entry_point is None:
        return
    script = folder / spec.entry_point
    if not os.path.isfile(script):
        raise InvalidSpec("entry_point", f"{spec.entry_point} is not a file in {folder}", hint=_nearby(script))
    if script.suffix != ".py":
        return
    try:
        with open(script, "rb") as file:
            text = file.read(_SCRIPT_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSpec("entry_point", f"{spec.entry_point} cannot be read: {error.strerror}") from error
    wrong = "" if len(text) > _SCRIPT_BYTES_MAX else _why_no_python(text, python)
    if wrong:
        raise InvalidSpec("entry_point", f"{spec.entry_point} is not a Python script: {wrong}")


def _why_no_python(text: bytes, python: str) -> str:
    if b"\0" in text:
        return "it has binary data in it"
    wrong = _misread(text)
    if not wrong:
        return ""
    import subprocess

    try:
        asked = subprocess.run([python, "-I", "-c", _READ_SCRIPT], input=text, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""  # that Python will tell, when the job starts
    said = asked.stderr.decode(errors="replace").strip().splitlines()
    is_refused = asked.returncode != 0 and said and said[-1].startswith(("SyntaxError", "IndentationError", "TabError"))
    return wrong if is_refused else ""


def _misread(text: bytes) -> str:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "script", "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        return f"{line}{error.msg}"
    except (ValueError, RecursionError, MemoryError):
        return ""
    return ""


def _nearby(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = os.listdir(path.parent)
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else "check the path"
