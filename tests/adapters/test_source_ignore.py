"""Does .trainmasterignore mean what the same lines mean to git?"""

import os
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trainmaster.adapters.source_ignore import RuleBook, parse_rules

FOLDERS = ["", "a", "b", "ab", "a/a", "a/b", "a/b/a", "b/ab", "b/ab/a"]
NAMES = ["a", "b", "ab", "ba", "aab", "a.b", ".a", "-", "]", "[", "!a", "#a", "a a", "a ", "a\\b", "^", "1", "ab*"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    git(root, "init", "-q")
    for folder in FOLDERS:
        (root / folder).mkdir(exist_ok=True)
        for name in NAMES:
            if f"{folder}/{name}".strip("/") not in FOLDERS:
                (root / folder / name).write_text("")
    return root


def git(folder, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environment).stdout


def kept_by_git(root):
    listed = git(root, "ls-files", "-z", "--others", "--exclude-standard")
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


def kept_by_us(root):
    book = RuleBook(str(root), ".gitignore")
    kept = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in os.scandir(root / folder):
            path = f"{folder}/{entry.name}".lstrip("/")
            rule = book.last_match(path, is_folder=entry.is_dir())
            if path == ".git" or (rule is not None and not rule.is_negated):
                continue
            if entry.is_dir():
                folders.append(path)
            else:
                kept.add(path)
    return kept


LINES = st.lists(
    st.one_of(
        st.text("ab*?/.", min_size=1, max_size=7),
        st.text("ab*?[]!^-/\\. #:1", min_size=1, max_size=9),
        st.sampled_from(["a", "b", "ab/", "/a", "!a", "a/b", "**/a", "a/**", "a/**/a", "[[:alpha:]]", "[^a]*", "*", "!*/"]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(outer=LINES, inner=st.one_of(st.just([]), LINES))
@example(outer=["a**/b"], inner=[])
@example(outer=["a/**b"], inner=[])
@example(outer=["**"], inner=["!a"])
@example(outer=["a\\ "], inner=[])
@example(outer=["a\\  "], inner=[])
@example(outer=["\\#a", "\\!a"], inner=[])
@example(outer=["a\\"], inner=[])
@example(outer=["[a-"], inner=[])
@example(outer=["[]-]", "[[:digit:]]"], inner=[])
@example(outer=["[[:nope:]]"], inner=[])
@example(outer=["[[:a]"], inner=[])
@example(outer=["[b-a]"], inner=[])
@example(outer=["[!b-a]"], inner=[])
@example(outer=["a\r", "/b/\r"], inner=[])
@example(outer=["\ufeffa"], inner=[])
@example(outer=["/"], inner=["//"])
@example(outer=["ab\\*"], inner=[])
def test_a_rule_means_what_it_means_to_git(tree, outer, inner):
    (tree / ".gitignore").write_text("\n".join(outer) + "\n")
    (tree / "a" / ".gitignore").write_text("\n".join(inner) + "\n")

    assert kept_by_us(tree) == kept_by_git(tree)


def test_a_question_mark_is_one_character_even_where_it_is_two_bytes():
    (rule,) = parse_rules("caf?")
    assert rule.pattern.fullmatch("café")


def test_comments_and_empty_lines_are_no_rules():
    assert parse_rules("# a comment\n\n   \n/\n!\n") == []


@pytest.mark.parametrize(
    ("line", "is_literal"), [("!ca.pem", True), ("!certs/ca.pem", True), ("!*.pem", False), ("!ca.pe[m]", False)]
)
def test_a_rule_knows_whether_it_names_one_path(line, is_literal):
    (rule,) = parse_rules(line)
    assert rule.is_literal is is_literal
