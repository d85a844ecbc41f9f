"""What does an environment say, and what is wrong with it? References to credentials, lines of requirement files, locks; pure.

A credential is named, never written: ``https://ada:${PASSWORD}@host/simple``. The name is filled in from the submitter's
environment on the machine that installs, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from .job_spec import Environment, JobSpec
from .problems import Problem, shown

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USER_PART = re.compile(r"(?<=://)([^/@\s'\"]+)@")
_PYTHON = re.compile(r"(cpython@?|pypy@?|graalpy@?)?[0-9]+(\.[0-9]+){0,2}((a|b|rc)[0-9]+)?t?")
_ADDRESS = re.compile(r"(https?|file)://[^\s]+")
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([^\s;\\]+)", re.MULTILINE)
_FROM_ADDRESS = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*@\s*([^\s;\\]+)", re.MULTILINE)
_HINT = "Write ${NAME} for the password, and set NAME where you submit."


def is_wanted(environment: Environment) -> bool:
    """Whether an environment is to be built; set-up commands alone need none."""
    return environment.python is not None or environment.requirements is not None or environment.conda is not None


def references(text: str) -> list[str]:
    """Names that are filled in from the submitter's environment."""
    return _REFERENCE.findall(text)


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with each reference replaced; one without a value stays as it is."""
    return _REFERENCE.sub(lambda found: values.get(found[1], found[0]), text)


def without_user(text: str) -> str:
    """The text with user names and passwords of addresses left out."""
    return _USER_PART.sub("", text)


def holds_password(text: str) -> bool:
    """Whether an address in the text has a password, or a token in place of one, that is written out."""
    for user_part in _USER_PART.findall(text):
        user, colon, password = user_part.partition(":")
        if _REFERENCE.sub("", password if colon else user):
            return True
    return False


class LineKind(StrEnum):
    """What a line of a requirements file may be, as far as we look."""

    #: another file of the same kind
    INCLUDE = "include"
    #: a folder or file of the source folder is installed
    IN_FOLDER = "in folder"
    #: the same, as a link
    EDITABLE = "editable"
    #: a package from elsewhere, or an option
    OTHER = "other"


class RequirementLine(NamedTuple):
    """One line of a requirements file."""

    kind: LineKind
    value: str
    number: int


def requirement_lines(text: str) -> list[RequirementLine]:
    """The lines that say something."""
    found: list[RequirementLine] = []
    for number, given in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", given).strip()
        if line:
            found.append(RequirementLine(*_kind(line), number))
    return found


def _kind(line: str) -> tuple[LineKind, str]:
    option = re.match(r"(-[rc]|--requirements?|--constraints?)(?:\s*=\s*|\s*)(\S+)$", line)
    if option is not None and not _ADDRESS.match(option[2]):
        return LineKind.INCLUDE, option[2]
    if re.match(r"(-e|--editable)\b", line):
        return LineKind.EDITABLE, line
    target = re.sub(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*@\s*", "", line)
    if re.match(r"(file:)?\.{0,2}/|\.{1,2}(\[|\s|;|$)|file:|[^\s:]+\.(whl|tar\.gz|zip)$", target):
        return LineKind.IN_FOLDER, line
    return LineKind.OTHER, line


def packages_of(lock: str) -> dict[str, str]:
    """Package → version, or the address it came from, as a lock says; names as PyPI spells them."""
    found = [*_PINNED.findall(lock), *_FROM_ADDRESS.findall(lock)]
    return {re.sub(r"[-_.]+", "-", name).lower(): without_user(version) for name, version in sorted(found)}


def _conda_stands_alone(spec: JobSpec) -> Iterator[Problem]:
    environment = spec.environment
    if environment.conda is None:
        return
    for name, value in (("requirements", environment.requirements), ("python", environment.python)):
        if value is not None:
            hint = "The conda file may name a Python and, below `pip:`, requirements."
            yield Problem("environment.conda", f"found beside environment.{name}, wanted one of the two", hint)


def _sources_serve_requirements(spec: JobSpec) -> Iterator[Problem]:
    environment = spec.environment
    sources = (("index", environment.index), ("extra_indexes", environment.extra_indexes), ("wheels", environment.wheels))
    for name, value in sources:
        if value and environment.requirements is None:
            yield Problem(f"environment.{name}", "is of no use without environment.requirements")
    if environment.wheels is not None and not environment.wheels.strip():
        yield Problem("environment.wheels", "is blank, wanted a folder of wheels")


def _indexes_are_addresses(spec: JobSpec) -> Iterator[Problem]:
    environment = spec.environment
    given = [("environment.index", environment.index)] if environment.index is not None else []
    given += [(f"environment.extra_indexes[{index}]", value) for index, value in enumerate(environment.extra_indexes)]
    for path, value in given:
        if holds_password(value):
            yield Problem(path, "holds a password, and the job file is kept", _HINT)
        elif not _ADDRESS.fullmatch(filled(value, dict.fromkeys(references(value), "x"))):
            yield Problem(path, f"found {shown(value)}, wanted an address such as https://packages.example.org/simple")


def _python_is_a_version(spec: JobSpec) -> Iterator[Problem]:
    python = spec.environment.python
    if python is not None and not _PYTHON.fullmatch(python):
        yield Problem("environment.python", f'found {shown(python)}, wanted a version such as "3.11" or "3.11.7"')


def _requirements_are_packages(spec: JobSpec) -> Iterator[Problem]:
    given = spec.environment.requirements
    for index, line in enumerate(given if isinstance(given, list) else []):
        path = f"environment.requirements[{index}]"
        if holds_password(line):
            yield Problem(path, "holds a password, and the job file is kept", _HINT)
        elif not line.strip() or "\n" in line or line.lstrip().startswith("-"):
            hint = "Options belong in a requirements file, or in environment.index and environment.wheels."
            yield Problem(path, f"found {shown(line)}, wanted one requirement such as numpy>=2", hint)


def _set_up_says_something(spec: JobSpec) -> Iterator[Problem]:
    for index, line in enumerate(spec.environment.setup):
        if not line.strip():
            yield Problem(f"environment.setup[{index}]", "is blank, wanted a shell command")


ENVIRONMENT_RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (
    _conda_stands_alone,
    _sources_serve_requirements,
    _indexes_are_addresses,
    _python_is_a_version,
    _requirements_are_packages,
    _set_up_says_something,
)
