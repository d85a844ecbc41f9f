"""What is wrong with the environment a job asks for? Found out when it is submitted, not minutes later on a machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trainmaster.adapters.environments.question import PROJECT_FILES, read_files, read_text
from trainmaster.adapters.environments.trouble import EnvironmentTrouble, Secrets
from trainmaster.errors import InvalidSpec
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec.environment import LineKind, holds_password, is_wanted, references, requirement_lines
from trainmaster.spec.job_spec import Environment

_REQUIREMENTS = "environment.requirements"


class SubmittedEnvironment:
    """What a job file says about an environment, looked at where it is submitted."""

    def __init__(self, environment: Environment, folder: Path, environ: Mapping[str, str]) -> None:
        self._asked, self._folder, self._environ = environment, folder, environ

    def refuse_impossible(self, shared: Path) -> None:
        """InvalidSpec naming the field: a file that is not there, a variable that is not set, a Python that is not installed."""
        asked, environ = self._asked, self._environ
        if asked == Environment():
            return
        if isinstance(asked.requirements, str):
            _refuse_bad_file(asked.requirements, self._folder, environ)
        for index, line in enumerate(asked.requirements if isinstance(asked.requirements, list) else []):
            _refuse_unset(f"{_REQUIREMENTS}[{index}]", line, environ)
        for index, address in enumerate(asked.extra_indexes):
            _refuse_unset(f"environment.extra_indexes[{index}]", address, environ)
        _refuse_unset("environment.index", asked.index or "", environ)
        if asked.wheels is not None:
            _refuse_no_wheels(self._folder / asked.wheels)
        if asked.conda is not None:
            _refuse_no_conda(asked.conda, self._folder, environ)
        if asked.python is not None:
            _refuse_no_python(asked.python, environ, shared)

    def refuse_left_out(self, packed: Iterable[str]) -> None:
        """A file that stays behind cannot be read on the machine."""
        asked = self._asked
        named = asked.requirements if isinstance(asked.requirements, str) else None
        wanted = {} if named is None else dict.fromkeys(read_files(self._folder, named), _REQUIREMENTS)
        if asked.conda is not None:
            wanted[asked.conda] = "environment.conda"
        there = set(packed) if wanted else set()
        for path, field in wanted.items():
            if os.path.normpath(path) not in there:
                hint = "take it out of .gitignore or .trainmasterignore"
                raise InvalidSpec(field, f"{path} is left out of the snapshot", hint=hint)

    def stage_wheels(self, store: BlockingStore, progress: Callable[[str, int, int], None]) -> str:
        """Keep the wheels in the store; the name of the whole, empty when there are none."""
        if self._asked.wheels is None:
            return ""
        from trainmaster.adapters.environments.wheelhouse import stage_wheels

        return stage_wheels(self._folder / self._asked.wheels, store, progress)

    def notes(self) -> tuple[str, ...]:
        """What the submitter should know: a requirements file is there that nobody asked to install."""
        active = self._environ.get("VIRTUAL_ENV") or self._environ.get("CONDA_PREFIX")
        if active or is_wanted(self._asked) or not (self._folder / "requirements.txt").is_file():
            return ()
        return ("requirements.txt is not installed; to have it: --requirements requirements.txt",)


def _refuse_bad_file(name: str, folder: Path, environ: Mapping[str, str]) -> None:
    try:
        files = read_files(folder, name)
    except EnvironmentTrouble as error:
        raise InvalidSpec(_REQUIREMENTS, error.sentence, hint=error.hint or _nearby(folder, name)) from error
    for path, text in files.items():
        if os.path.basename(path) in PROJECT_FILES or path.endswith(".toml"):
            continue
        for line in requirement_lines(text):
            where = f"{path}, line {line.number},"
            if holds_password(line.value):
                hint = "write ${NAME} for it, and set NAME where you submit"
                raise InvalidSpec(_REQUIREMENTS, f"{where} holds a password, and the code is kept", hint=hint)
            if line.kind is LineKind.EDITABLE:
                hint = "leave out the -e: the script finds its own folder anyway, and a copy is installed of others"
                raise InvalidSpec(_REQUIREMENTS, f"{where} installs a link to this folder, and environments are shared", hint=hint)
            _refuse_unset(f"{_REQUIREMENTS}: {where}", line.value, environ)


def _refuse_unset(path: str, text: str, environ: Mapping[str, str]) -> None:
    for name in references(text):
        if not environ.get(name):
            raise InvalidSpec(path, f"{name} is not set here", hint=f"set it where you submit: export {name}=…")


def _refuse_no_conda(name: str, folder: Path, environ: Mapping[str, str]) -> None:
    from trainmaster.adapters.environments.conda import TOOLS, find_conda

    try:
        read_text(folder, name)
    except EnvironmentTrouble as error:
        raise InvalidSpec("environment.conda", error.sentence, hint=error.hint or _nearby(folder, name)) from error
    if find_conda(environ) is None:
        hint = "install one, or list the packages in environment.requirements"
        raise InvalidSpec("environment.conda", f"none of {', '.join(TOOLS)} is on your PATH", hint=hint)


def _refuse_no_python(request: str, environ: Mapping[str, str], shared: Path) -> None:
    """What was found before is only looked at: asking uv takes longer than the rest of a submission."""
    asked = hashlib.sha256(f"{request}:{environ.get('PATH')}".encode()).hexdigest()
    known = shared / "envs" / "asked" / f"python-{asked[:32]}"
    try:
        if os.access(known.read_text(), os.X_OK):
            return
    except OSError:
        pass  # nobody has asked yet
    from trainmaster.adapters.environments.pythons import find_python
    from trainmaster.adapters.environments.tool import Tools

    try:
        found = find_python(Tools(lambda _: None, Secrets({}), lambda: True), request, environ)
    except EnvironmentTrouble as error:
        raise InvalidSpec("environment.python", error.sentence, hint=error.hint) from error
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(found)


def _refuse_no_wheels(folder: Path) -> None:
    from trainmaster.adapters.environments.wheelhouse import wheel_names

    wheel_names(folder)


def _nearby(folder: Path, name: str) -> str:
    from difflib import get_close_matches

    try:
        names = os.listdir((folder / name).parent)
    except OSError:
        names = []
    near = get_close_matches(os.path.basename(name), names, n=1)
    beside = os.path.join(os.path.dirname(name), near[0]) if near else ""
    return f"did you mean {beside}?" if beside else "name a file in the source folder"
