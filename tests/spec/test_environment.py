"""Does an environment say what it means? References, lines of requirement files, locks, and what is wrong with them."""

from __future__ import annotations

import pytest

from trainmaster.errors import InvalidSpec
from trainmaster.spec.environment import (
    LineKind,
    filled,
    holds_password,
    is_wanted,
    packages_of,
    references,
    requirement_lines,
    without_user,
)
from trainmaster.spec.job_spec import Environment
from trainmaster.spec.parse import spec_from_mapping


def problem(**environment) -> str:
    with pytest.raises(InvalidSpec) as error:
        spec_from_mapping({"command": "x", "environment": environment})
    return error.value.sentence


def test_what_needs_an_environment():
    assert not is_wanted(Environment())
    assert not is_wanted(Environment(setup=["true"]))
    assert is_wanted(Environment(python="3.11"))
    assert is_wanted(Environment(requirements=[]))
    assert is_wanted(Environment(conda="e.yml"))


def test_references_are_filled_in():
    text = "https://${USER}:${PASS}@host/${PASS}"
    assert references(text) == ["USER", "PASS", "PASS"]
    assert filled(text, {"PASS": "p"}) == "https://${USER}:p@host/p"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://host/simple", False),
        ("https://ada:pw@host/simple", True),
        ("https://ada:${PW}@host/simple", False),
        ("https://${TOKEN}@host", False),
        ("https://token@host", True),
        ("https://${A}:x${B}@host", True),
        ("git+https://ghp@github.com/a/b", True),
        ("numpy>=2", False),
        ("mail me@host", False),
    ],
)
def test_a_password_that_is_written_out_is_seen(text, expected):
    assert holds_password(text) is expected


def test_the_user_part_of_an_address_is_left_out():
    assert without_user("a https://u:p@h/x b http://h/y@1") == "a https://h/x b http://h/y@1"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("-r other.txt", LineKind.INCLUDE),
        ("-rother.txt", LineKind.INCLUDE),
        ("--requirement=other.txt", LineKind.INCLUDE),
        ("-c limits.txt", LineKind.INCLUDE),
        ("-r https://host/r.txt", LineKind.OTHER),
        ("-e .", LineKind.EDITABLE),
        ("--editable ./pkg", LineKind.EDITABLE),
        (".", LineKind.IN_FOLDER),
        (".[extra]", LineKind.IN_FOLDER),
        ("./pkg", LineKind.IN_FOLDER),
        ("../pkg", LineKind.IN_FOLDER),
        ("/abs/pkg", LineKind.IN_FOLDER),
        ("pkg @ ./pkg", LineKind.IN_FOLDER),
        ("pkg @ file:///abs", LineKind.IN_FOLDER),
        ("wheels/a-1.0-py3-none-any.whl", LineKind.IN_FOLDER),
        ("numpy>=2", LineKind.OTHER),
        ("pkg @ https://host/pkg-1.0.whl", LineKind.OTHER),
        ("https://host/pkg-1.0.whl", LineKind.OTHER),
        ("--index-url https://host", LineKind.OTHER),
    ],
)
def test_what_a_line_is(line, kind):
    [found] = requirement_lines(f"# a comment\n\n{line}  # why\n")
    assert (found.kind, found.number) == (kind, 3)


def test_an_include_names_its_file():
    assert [line.value for line in requirement_lines("-r a.txt\n--constraint b.txt")] == ["a.txt", "b.txt"]


def test_packages_of_a_lock():
    lock = "# x\nB_b.c==1.0 \\\n    --hash=sha256:1\na[x]==2 ; python_version > '3'\nd @ https://u:p@h/d.whl\n./local\n"
    assert packages_of(lock) == {"b-b-c": "1.0", "a": "2", "d": "https://h/d.whl"}


def test_conda_stands_alone():
    assert "environment.conda: found beside environment.requirements" in problem(conda="e.yml", requirements="r.txt")
    assert "environment.conda: found beside environment.python" in problem(conda="e.yml", python="3.11")


@pytest.mark.parametrize("field", [{"index": "https://i"}, {"extra_indexes": ["https://i"]}, {"wheels": "w"}])
def test_where_packages_come_from_is_of_no_use_without_any(field):
    assert problem(**field) == f"environment.{next(iter(field))}: is of no use without environment.requirements"


def test_sources_are_addresses_without_passwords():
    assert "environment.index: holds a password" in problem(requirements=[], index="https://a:b@host")
    assert "environment.extra_indexes[0]: found" in problem(requirements=[], extra_indexes=["pypi"])
    assert "is blank" in problem(requirements=[], wheels=" ")
    asked = {"requirements": ["a"], "index": "https://${U}:${P}@host/simple", "extra_indexes": ["http://h"], "wheels": "w"}
    assert spec_from_mapping({"command": "x", "environment": asked}).environment.wheels == "w"


@pytest.mark.parametrize("version", ["3", "3.11", "3.11.7", "pypy3.10", "cpython@3.12", "3.14rc1", "3.13t"])
def test_a_python_is_a_version(version):
    assert spec_from_mapping({"command": "x", "environment": {"python": version}}).environment.python == version


@pytest.mark.parametrize("version", ["", "python", "/usr/bin/python", ">=3.11", "3.11\n"])
def test_what_is_no_version(version):
    assert 'wanted a version such as "3.11"' in problem(python=version)


@pytest.mark.parametrize("line", ["", "-e .", "--index-url x", "a\nb"])
def test_a_list_holds_requirements(line):
    assert "environment.requirements[1]: found" in problem(requirements=["numpy", line])


def test_a_list_holds_no_password():
    assert "environment.requirements[0]: holds a password" in problem(requirements=["a @ https://u:p@h/a.whl"])


@pytest.mark.parametrize("path", ["../r.txt", "/r.txt", "", "a/../../r.txt"])
def test_files_lie_in_the_source_folder(path):
    assert problem(requirements=path).startswith("environment.requirements: found")
    assert problem(conda=path).startswith("environment.conda: found")


def test_set_up_commands_say_something():
    assert problem(setup=["true", " "]) == "environment.setup[1]: is blank, wanted a shell command"
