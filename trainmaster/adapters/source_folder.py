"""Which files of a source folder belong to a job?

Inside a git work tree: what git tracks, and what it would offer to add. Elsewhere: everything. In both cases less what
.trainmasterignore names and less what never belongs into a snapshot (source_secrets). Only files and links count; like
git, an empty folder is nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from trainmaster.adapters import source_secrets
from trainmaster.adapters.source_git import GitListing, GitSilence, ask_git, find_ignored
from trainmaster.adapters.source_ignore import RuleBook
from trainmaster.adapters.source_links import Circle, Destination, Outside, follow
from trainmaster.adapters.source_size import over_limit
from trainmaster.errors import InvalidSource

IGNORE_FILE = ".trainmasterignore"
_READABLE_BY_ALL = 0o444
_IGNORED_BY_GIT = "git ignores it"


class SourceFile(Struct, frozen=True):
    """One file or link of the snapshot."""

    #: Relative to the folder, "/"-separated, valid UTF-8.
    path: str
    size_bytes: int = 0
    is_executable: bool = False
    #: None: a file. Otherwise a link, and what it holds.
    link_target: str | None = None


class LeftOut(Struct, frozen=True):
    """A file, or a folder with all that is in it (its path ends in "/"), that stays behind."""

    path: str
    why: str


class SourceListing(Struct, frozen=True):
    """What a snapshot will hold, in the order of the archive."""

    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...]
    #: HEAD; None outside of git, or before the first commit.
    commit: str | None
    #: The snapshot is not what the commit holds: a tracked file is changed, or an untracked one goes along.
    is_dirty: bool
    total_bytes: int
    #: What the user should know, in sentences.
    notes: tuple[str, ...] = ()


def list_source(folder: Path, *, user_home: Path, trainmaster_home: Path, size_limit_bytes: int) -> SourceListing:
    """What belongs to a job started in `folder`; InvalidSource names what cannot go along, and the remedy."""
    root = _refuse_unfit(folder, user_home)
    own = os.path.realpath(trainmaster_home)
    if root == own:
        raise InvalidSource(f"The source folder {folder} is Trainmaster's own.", hint="Name the folder of your code.")
    git = ask_git(root)
    notes = []
    if isinstance(git, GitSilence):
        notes.append(f"The files were found without git, and the commit is not recorded: {git.why}.")
    elif git is not None and not (git.tracked or git.untracked or git.missing):
        notes.append("git ignores this folder; the files were found without git, and the commit is not recorded.")
        git = None
    walk = _Walk(root, git, own)
    walk.collect()
    answer = git if isinstance(git, GitListing) else None
    _refuse_special_files(walk, answer)
    _settle_links(walk)
    files = tuple(sorted(walk.files.values(), key=lambda file: file.path.encode()))
    total_bytes = sum(file.size_bytes for file in files)
    if total_bytes > size_limit_bytes:
        raise over_limit({file.path: file.size_bytes for file in files}, size_limit_bytes)
    return SourceListing(
        files=files,
        left_out=tuple(LeftOut(_shown(path), why) for path, why in sorted(walk.left_out.items())),
        commit=answer.commit if answer else None,
        is_dirty=answer is not None and (answer.has_changes or not answer.untracked.isdisjoint(walk.files)),
        total_bytes=total_bytes,
        notes=tuple(notes),
    )


def _refuse_unfit(folder: Path, user_home: Path) -> str:
    """The folder without links, or InvalidSource."""
    try:
        is_folder = stat.S_ISDIR(os.stat(folder).st_mode)
    except OSError as error:
        raise InvalidSource(f"The source folder {folder} cannot be opened: {error.strerror}.") from error
    if not is_folder:
        raise InvalidSource(f"The source folder {folder} is not a folder.", hint="Name the folder the file lies in.")
    root = os.path.realpath(folder)
    home = os.path.realpath(user_home)
    if root == home or home.startswith(root.rstrip("/") + "/"):
        what = "your whole home folder" if root == home else f"{root}, which holds your home folder"
        raise InvalidSource(
            f"The source folder is {what}; everything in it would be copied.",
            hint="Put the code into a folder of its own, and start from there.",
        )
    if root == "/":
        raise InvalidSource(
            "The source folder is /; the whole machine would be copied.",
            hint="Put the code into a folder of its own, and start from there.",
        )
    return root


class _Walk:
    """One pass over the folder; what it finds is in its attributes."""

    def __init__(self, root: str, git: GitListing | GitSilence | None, trainmaster_home: str) -> None:
        self.root = root
        self.files: dict[str, SourceFile] = {}
        #: Why each path stays behind; that of a folder ends in "/".
        self.left_out: dict[str, str] = {}
        #: What is neither file nor folder nor link, and what it is.
        self.special: dict[str, str] = {}
        self._trainmaster_home = trainmaster_home
        self._rules = RuleBook(root, IGNORE_FILE)
        self._listed: frozenset[str] | None = None
        self._listed_folders: set[str] = set()
        self._tracked: frozenset[str] = frozenset()
        self._git_rules: RuleBook | None = None
        self._git_prefix = ""
        if isinstance(git, GitListing):
            self._tracked = git.tracked.union(_folders_of(git.tracked))
            self._listed = git.tracked | git.untracked
            self._listed_folders = _folders_of(self._listed)
            self.left_out.update((f"{path}/", why) for path, why in git.missing)
        elif git is not None:
            # Without git its ignore files still say what the user wants to keep to himself.
            self._git_rules = RuleBook(git.work_tree, ".gitignore")
            self._git_prefix = "" if root == git.work_tree else os.path.relpath(root, git.work_tree) + "/"

    def collect(self) -> None:
        """Visit every folder that may hold something for the job."""
        folders = [""]
        while folders:
            self._scan(folders.pop(), folders)
        if self._listed is not None:
            for path in sorted(self._listed.difference(self.files)):
                self._take_unseen(path)

    def _scan(self, folder: str, folders: list[str]) -> None:
        try:
            with os.scandir(os.path.join(self.root, folder)) as found:
                entries = list(found)
        except OSError as error:
            self._pass_over(folder, error)
            return
        if folder and any(entry.name == "pyvenv.cfg" for entry in entries):
            why = self._why_left_out(folder, source_secrets.VIRTUAL_ENVIRONMENT, is_folder=True)
            if why is not None:
                self.left_out[f"{folder}/"] = why
                return
        prefix = f"{folder}/" if folder else ""
        for entry in entries:
            path = prefix + entry.name
            if not entry.is_dir(follow_symlinks=False):
                self._look_at(path)
            elif self._wants_folder(path, entry.name):
                folders.append(path)

    def _pass_over(self, folder: str, error: OSError) -> None:
        """A folder that cannot be opened is no loss if git ignores it: containers like to leave such ones behind."""
        is_unlisted = self._listed is not None and folder not in self._listed_folders
        if not (folder and is_unlisted and find_ignored(self.root, [folder])):
            raise _unreadable("folder", folder, "chmod u+rx", error) from error
        self.left_out[f"{folder}/"] = _IGNORED_BY_GIT

    def _wants_folder(self, path: str, name: str) -> bool:
        """Whether to look inside; where not, the reason is noted."""
        if f"{path}/" in self.left_out:
            return False
        why = self._why_left_out(path, source_secrets.why_folder_stays(name), is_folder=True)
        if os.path.join(self.root, path) == self._trainmaster_home:
            why = "Trainmaster's own data"
        if why is None and self._listed is not None and path not in self._listed_folders:
            # git lists no file in it. If there are any, git ignores them. If there are none, a FIFO may still lie there.
            why = _IGNORED_BY_GIT if _holds_files(os.path.join(self.root, path)) else None
        if why is not None:
            self.left_out[f"{path}/"] = why
        return why is None

    def _look_at(self, path: str) -> None:
        try:
            status = os.lstat(os.path.join(self.root, path))
        except (FileNotFoundError, NotADirectoryError):
            # Deleted a moment ago, or long since and git still lists it.
            return
        except OSError as error:
            raise _unreadable("file", path, "chmod u+r", error) from error
        if not stat.S_ISDIR(status.st_mode):
            self._take(path, status)

    def _take(self, path: str, status: os.stat_result) -> None:
        """Keep what is no folder, or note why not."""
        name = path.rpartition("/")[2]
        is_link = stat.S_ISLNK(status.st_mode)
        builtin = source_secrets.why_link_stays(name) if is_link else source_secrets.why_file_stays(name)
        if builtin is None and stat.S_ISREG(status.st_mode):
            builtin = source_secrets.why_content_stays(os.path.join(self.root, path), status.st_size)
        why = self._why_left_out(path, builtin, is_folder=False)
        is_special = not is_link and not stat.S_ISREG(status.st_mode)
        if why is None and self._listed is not None and path not in self._listed and not is_special:
            why = _IGNORED_BY_GIT
        if why is not None:
            self.left_out[path] = why
        elif is_special:
            self.special[path] = _SPECIAL_KINDS.get(stat.S_IFMT(status.st_mode), "not a file")
        else:
            self._keep(path, status)

    def _keep(self, path: str, status: os.stat_result) -> None:
        full = os.path.join(self.root, path)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(full)
            _refuse_odd_name(path, target)
            self.files[path] = SourceFile(path, link_target=target)
            return
        _refuse_odd_name(path, "")
        # The mode answers for nearly all files, and without another question to the kernel.
        if status.st_mode & _READABLE_BY_ALL != _READABLE_BY_ALL and not os.access(full, os.R_OK):
            raise _unreadable("file", path, "chmod u+r", PermissionError(13, "Permission denied"))
        self.files[path] = SourceFile(path, status.st_size, bool(status.st_mode & stat.S_IXUSR))

    def _why_left_out(self, path: str, builtin: str | None, *, is_folder: bool) -> str | None:
        rule = self._rules.last_match(path, is_folder=is_folder)
        if rule is not None and not rule.is_negated:
            return f"{IGNORE_FILE} says {rule.line}"
        # "!*/" and "!*.json" are ways to say "all the rest"; only who writes the whole name means the key file.
        is_called_back = rule is not None and rule.is_literal and path.rpartition("/")[2] != ".git"
        if builtin is not None and not is_called_back:
            return f"{builtin}, though git tracks it" if path in self._tracked else builtin
        if self._git_rules is not None:
            rule = self._git_rules.last_match(self._git_prefix + path, is_folder=is_folder)
            if rule is not None and not rule.is_negated:
                return f".gitignore says {rule.line}"
        return None

    def _take_unseen(self, path: str) -> None:
        """git lists it, the walk did not meet it: mostly it is deleted.

        But where the file system does not tell A from a, git may know the file by another spelling than the folder.
        """
        if path in self.left_out or path in self.special:
            return
        for parent in _parents(path):
            if f"{parent}/" in self.left_out or os.path.islink(os.path.join(self.root, parent)):
                return
        self._look_at(path)


_SPECIAL_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _refuse_special_files(walk: _Walk, git: GitListing | None) -> None:
    if not walk.special:
        return
    # git never lists these, so its ignore files have not been asked yet.
    ignored = find_ignored(walk.root, sorted(walk.special)) if git is not None else frozenset()
    walk.left_out.update((path, _IGNORED_BY_GIT) for path in ignored)
    left = sorted(set(walk.special) - ignored)
    if left:
        more = f" (and {len(left) - 1} more like it)" if len(left) > 1 else ""
        raise InvalidSource(
            f"{_shown(left[0])} is {walk.special[left[0]]}, not a file{more}; it cannot be copied to another machine.",
            hint=f"Delete it, or name it in {IGNORE_FILE}.",
        )


def _settle_links(walk: _Walk) -> None:
    """Refuse links that would lead nowhere on another machine; leave out those to what is left out."""
    found = {
        path: _destination(walk.root, path, file.link_target) for path, file in walk.files.items() if file.link_target is not None
    }
    while found:
        kept = _folders_of(walk.files).union(walk.files, [""])
        orphans = [path for path, end in found.items() if end.path not in kept or not kept.issuperset(end.via)]
        if not orphans:
            return
        for path in orphans:
            end = found.pop(path)
            del walk.files[path]
            walk.left_out[path] = f"it leads to {_shown(end.path)}, which is left out or empty"


def _destination(root: str, path: str, target: str) -> Destination:
    def target_of(here: str) -> str | None:
        try:
            return os.readlink(os.path.join(root, here))
        except OSError:
            return None

    end = follow(path, target_of)
    name, goal = _shown(path), _shown(target)
    if isinstance(end, Outside):
        is_inside = target.startswith(root + "/")
        raise InvalidSource(
            f"The link {name} leads out of the source folder, to {goal}; it would lead nowhere on another machine.",
            hint="Make it a relative link."
            if is_inside
            else f"Copy what it leads to into the folder, or name the link in {IGNORE_FILE}.",
        )
    if isinstance(end, Circle) or not os.path.exists(os.path.join(root, path)):
        what = "leads back to itself" if isinstance(end, Circle) else f"is broken: {goal} does not exist"
        raise InvalidSource(f"The link {name} {what}.", hint=f"Mend it, delete it, or name it in {IGNORE_FILE}.")
    return end


def _holds_files(folder: str) -> bool:
    """Whether there is a file or a link in it; stops at the first, as a folder that git ignores may hold millions."""
    folders = [folder]
    while folders:
        if _holds_file_itself(folders.pop(), folders):
            return True
    return False


def _holds_file_itself(folder: str, folders: list[str]) -> bool:
    try:
        entries = os.scandir(folder)
    except OSError:
        return False
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                return True
    return False


def _folders_of(paths: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for path in paths:
        for parent in _parents(path):
            if parent in folders:
                break
            folders.add(parent)
    return folders


def _parents(path: str) -> Iterator[str]:
    """The folders that a path lies in, the nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _refuse_odd_name(path: str, target: str) -> None:
    try:
        (path + target).encode()
    except UnicodeEncodeError:
        raise InvalidSource(
            f"The name {_shown(path)}{' or what it leads to' if target else ''} is not valid UTF-8.",
            hint=f"Rename it, or name it in {IGNORE_FILE}, with ? for the odd characters.",
        ) from None


def _unreadable(kind: str, path: str, remedy: str, error: OSError) -> InvalidSource:
    name = _shown(path) or "."
    return InvalidSource(
        f"The {kind} {name} cannot be read: {error.strerror}.",
        hint=f"Make it readable ({remedy} {name}), or name it in {IGNORE_FILE}.",
    )


def _shown(path: str) -> str:
    """The path as it can be printed: names may hold newlines, or bytes that are no text."""
    if path.isprintable():
        return path
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
