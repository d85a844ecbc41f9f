"""What does git know of a folder: which files, which commit, and is anything changed?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import subprocess

#: Mode of an index entry that stands for a submodule.
GITLINK_MODE = "160000"


class GitListing(Struct, frozen=True):
    """What git lists below a folder; paths are relative to it."""

    tracked: frozenset[str]
    untracked: frozenset[str]
    commit: str | None
    has_changes: bool
    #: Repositories inside the folder whose files are not here, each with the reason.
    missing: tuple[tuple[str, str], ...]


class GitSilence(Struct, frozen=True):
    """The folder lies in a work tree, but git does not answer."""

    why: str
    work_tree: str


def ask_git(folder: str) -> GitListing | GitSilence | None:
    """What git knows of `folder`, an absolute path without links; None outside of any work tree. Changes nothing."""
    work_tree = _find_work_tree(folder)
    if work_tree is None:
        return None
    try:
        # Both at once: a process costs more than what it does.
        listing = _start_git(folder, "ls-files", "-z", "-t", "--stage", "--others", "--exclude-standard")
        status = _start_git(
            folder, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=dirty", "."
        )
    except FileNotFoundError:
        return GitSilence("git is not installed", work_tree)
    listed, complaints = listing.communicate()
    changes, status_complaints = status.communicate()
    if listing.returncode or status.returncode:
        return GitSilence(_render_complaint(complaints or status_complaints), work_tree)
    commit, has_changes = _parse_status(changes)
    tracked, untracked, inner = _parse_listing(listed)
    own = GitListing(frozenset(tracked), frozenset(untracked), commit, has_changes, ())
    return _with_inner_repositories(folder, own, inner) if inner else own


def find_ignored(folder: str, paths: list[str]) -> frozenset[str]:
    """Those of `paths` that git would ignore; for the few that git never lists, such as FIFOs and closed folders."""
    import subprocess

    process = _start_git(folder, "check-ignore", "-z", "--stdin", stdin=subprocess.PIPE)
    answer, _ = process.communicate(b"\0".join(os.fsencode(path) for path in paths))
    return frozenset(os.fsdecode(path) for path in answer.split(b"\0") if path)


def _find_work_tree(folder: str) -> str | None:
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def _start_git(folder: str, *arguments: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
    import subprocess

    # A caller inside a git hook or an editor has GIT_DIR and friends set; they speak of another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # No lock: a look at the folder may not get in the way of the user's own git.
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.Popen(
        ["git", "-c", "core.fsmonitor=false", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _render_complaint(stderr: bytes) -> str:
    text = stderr.decode("utf-8", "replace")
    if "dubious ownership" in text or "unsafe repository" in text:
        return "git does not trust the repository, because it belongs to another user"
    first = text.strip().partition("\n")[0].removeprefix("fatal: ")
    return f"git says: {first}" if first else "git failed without a word"


def _parse_status(output: bytes) -> tuple[str | None, bool]:
    commit = None
    has_changes = False
    for field in output.split(b"\0"):
        if field.startswith(b"# branch.oid "):
            commit = field[13:].decode()
        elif field and not field.startswith(b"# "):
            has_changes = True
    return (None if commit == "(initial)" else commit), has_changes


def _parse_listing(output: bytes) -> tuple[set[str], set[str], dict[str, bool]]:
    """Tracked files, untracked files, and folders that are repositories of their own: are they submodules?"""
    tracked: set[str] = set()
    untracked: set[str] = set()
    inner: dict[str, bool] = {}
    for field in os.fsdecode(output).split("\0"):
        if field.startswith("? "):
            path = field[2:]
            if path.endswith("/"):
                inner[path[:-1]] = False
            else:
                untracked.add(path)
        elif field:
            # "H 100644 <hash> <stage>\t<path>"
            description, _, path = field.partition("\t")
            if description[2:8] == GITLINK_MODE:
                inner[path] = True
            else:
                tracked.add(path)
    return tracked, untracked, inner


def _with_inner_repositories(folder: str, own: GitListing, inner: dict[str, bool]) -> GitListing:
    """git stops at the border of a submodule and of a repository that lies around inside; their files belong to the job."""
    tracked, untracked, missing = set(own.tracked), set(own.untracked), list(own.missing)
    has_changes = own.has_changes
    for path, is_submodule in sorted(inner.items()):
        inside = os.path.join(folder, path)
        if not os.path.isdir(inside) or os.path.islink(inside):
            continue
        if not os.path.lexists(os.path.join(inside, ".git")):
            missing.append((path, "a submodule that is not checked out (git submodule update --init brings it)"))
            continue
        answer = ask_git(inside)
        if not isinstance(answer, GitListing):
            missing.append((path, "a repository of its own, and " + (answer.why if answer else "git is silent about it")))
            continue
        # Files of a repository that is no submodule are in no commit of ours, whatever their own repository says.
        (tracked if is_submodule else untracked).update(f"{path}/{name}" for name in answer.tracked)
        untracked.update(f"{path}/{name}" for name in answer.untracked)
        missing.extend((f"{path}/{name}", why) for name, why in answer.missing)
        has_changes = has_changes or answer.has_changes
    return GitListing(frozenset(tracked), frozenset(untracked), own.commit, has_changes, tuple(missing))
