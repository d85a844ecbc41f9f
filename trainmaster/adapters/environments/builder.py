"""How does a question become an environment? Resolved into a lock, installed from it, kept on the shelf; all by uv.

uv installs by linking files from its cache, so the cache lies on the same disk as the environments: beside them, unless the
submitter's UV_CACHE_DIR names another.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from trainmaster.adapters.environments import conda
from trainmaster.adapters.environments.lock_file import Lock, LockHead, key_of, parse_lock, requirements_of_pylock
from trainmaster.adapters.environments.pythons import PythonFacts, describe_python, find_python
from trainmaster.adapters.environments.question import Question, read_text
from trainmaster.adapters.environments.shelf import EnvironmentFile, Held, Shelf, mark_of
from trainmaster.adapters.environments.tool import Tools, find_uv, tool_environ
from trainmaster.adapters.environments.trouble import EnvironmentTrouble
from trainmaster.adapters.environments.wheelhouse import wheels
from trainmaster.ports.object_store import BlockingStore
from trainmaster.spec import layout
from trainmaster.spec.environment import filled, holds_password, packages_of

_TRIES = 5


class Site(Struct, frozen=True, kw_only=True):
    """What a build stands on."""

    #: folder of this machine that all its jobs share
    shared: Path
    store: BlockingStore
    tools: Tools
    #: tells people what is being done
    tell: Callable[[str], None]

    @property
    def shelf(self) -> Shelf:
        """The environments of this machine."""
        return Shelf(self.shared / "envs")


def provide(question: Question, site: Site) -> Held:
    """The environment that answers the question, built if it has to be; others that ask the same meanwhile wait for it."""
    asked, shelf = question.name, site.shelf
    if (held := shelf.find(asked)) is not None:
        return held

    def wait() -> None:
        site.tools.refuse_unwanted()
        site.tell("waiting for another job that builds the same environment")

    for _ in range(_TRIES):
        with shelf.asking(asked, wait):
            if (held := shelf.find(asked)) is not None:
                return held
            _Build(question, site).run(asked)
            if (held := shelf.find(asked)) is not None:
                return replace(held, was_there=False)
        # Somebody removed it in the moment between.
    raise EnvironmentTrouble("the environment is removed again and again while it is built")


def keep_lock(held: Held, site: Site) -> None:
    """The lock in the store, once for each store: from it alone the environment can be built again."""
    site.store.put_if_absent(layout.environment_lock(held.file.key), (held.folder.parent / "lock.txt").read_bytes())
    held.stored_mark(site.store.url).touch()


class _Build:
    """One build."""

    def __init__(self, question: Question, site: Site) -> None:
        self._question, self._site, self._tools = question, site, site.tools
        self._environ = tool_environ(question.base, _sources(question, site.shared))
        self._where: list[str] = []
        #: an empty cache need not be tried
        self._had_cache = any(Path(self._environ["UV_CACHE_DIR"]).glob("archive-v*"))

    def run(self, asked: str) -> None:
        """From the question to an environment that answers it."""
        self._site.tell("resolving environment")
        self._site.shared.mkdir(parents=True, exist_ok=True)
        if self._question.environment.conda is not None:
            key = self._conda()
        else:
            with ExitStack() as needed:
                python, lock = self._resolved(needed)
                key = lock.key
                self._unless_there(key, lambda place: self._install(place, python, lock))
        self._site.shelf.answer(asked, key)

    def _unless_there(self, key: str, build: Callable[[Path], None]) -> None:
        shelf = self._site.shelf
        held = shelf.take(key, was_there=True)
        if held is None:
            with shelf.building(key, self._tools.refuse_unwanted) as place:
                began_s = time.monotonic()
                build(place)
                self._tools.say(f"built in {time.monotonic() - began_s:.1f} s")
        else:
            held.let_go()

    def _resolved(self, needed: ExitStack) -> tuple[PythonFacts, Lock]:
        """The interpreter, and the lock that was given or is made; `needed` holds what they are installed from."""
        question = self._question
        if question.lock:
            lock = self._given_lock()
            if lock.head.kind == "conda":
                raise EnvironmentTrouble("the lock is one of conda's", hint="name environment.conda in the job too")
            self._fetch_wheels(lock.head.wheelhouse, needed)
            python = self._python_like(lock.head.python)
            return python, replace(lock, head=replace(lock.head, python=python.words, platform=python.platform))
        self._fetch_wheels(question.wheelhouse, needed)
        request = question.environment.python
        python = describe_python(self._tools, find_python(self._tools, request, question.base) if request else question.python)
        head = LockHead(
            python=python.words,
            platform=python.platform,
            wheelhouse=question.wheelhouse,
            code=question.code if question.installs_from_folder else "",
        )
        return python, Lock(head=head, body=self._pinned(python))

    def _python_like(self, words: str) -> PythonFacts:
        """The interpreter of a lock: the same version, or the same but for its last number."""
        implementation, _, version = words.partition(" ")
        request = self._question.environment.python or f"{implementation}@{version}"
        try:
            return describe_python(self._tools, find_python(self._tools, request, self._question.base))
        except EnvironmentTrouble:
            if self._question.environment.python is not None:
                raise
        near = f"{implementation}@{'.'.join(version.split('.')[:2])}"
        return describe_python(self._tools, find_python(self._tools, near, self._question.base))

    def _given_lock(self) -> Lock:
        """The lock from the store; where that was emptied, the one that lies beside an environment of this machine."""
        name = self._question.lock
        value = self._site.store.get(layout.environment_lock(name)) or self._site.shelf.lock_of(name)
        if value is None:
            raise EnvironmentTrouble(f"the lock {name[:12]} is not in the store any more")
        lock = parse_lock(value.decode(errors="replace"), name)
        if lock.head.kind != "conda" and key_of(value) != name:
            raise EnvironmentTrouble(f"the lock {name[:12]} in the store was changed: it is not the one the job was run with")
        return lock

    def _fetch_wheels(self, sha256: str, needed: ExitStack) -> None:
        """Where packages come from besides an index; from nowhere else, when no index is named."""
        if not sha256:
            return
        there = wheels(sha256, self._site.store, self._site.shared / "wheels", self._tools.refuse_unwanted)
        folder = needed.enter_context(there)
        self._where = ["--find-links", str(folder)]
        if self._question.environment.index is None and not self._question.environment.extra_indexes:
            self._where += ["--no-index", "--offline"]

    def _pinned(self, python: PythonFacts) -> str:
        """Every package with its version and hashes, as uv resolves what was asked for."""
        question, uv = self._question, find_uv()
        given, folder = question.environment.requirements, question.folder
        if given is None:
            return ""
        name = os.path.basename(question.file)
        if name == "uv.lock":
            read_text(folder, os.path.join(os.path.dirname(question.file), "pyproject.toml"))
            words = [uv, "export", "--quiet", "--frozen", "--no-emit-project", "--no-dev", "--no-header", "--no-annotate"]
            project = folder / os.path.dirname(question.file)
            text = self._call("uv.lock could not be read", [*words, "--project", str(project), "--python", python.path])
        elif name.startswith("pylock") and name.endswith(".toml"):
            text = requirements_of_pylock(read_text(folder, question.file), question.file)
        else:
            text = self._compiled(python)
        if any(line.startswith("-e ") for line in text.splitlines()):
            raise EnvironmentTrouble("a package would be installed as a link to this job's folder, and environments are shared")
        if holds_password(text):
            raise EnvironmentTrouble("a package's address holds a password, and locks are kept", hint="write ${NAME} in its place")
        return text

    def _compiled(self, python: PythonFacts) -> str:
        question, given = self._question, self._question.environment.requirements
        source = question.file
        if isinstance(given, list):
            source = str(self._scratch(question.name, "\n".join(given)))
        words = [find_uv(), "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--no-strip-extras"]
        words += ["--python", python.path, "--no-emit-index-url", *self._where, "--", source]
        what = (
            f"the requirements in {question.file} could not be resolved"
            if question.file
            else "the requirements could not be resolved"
        )
        text = self._call(what, words)
        if not re.search(r"^[^#\s]", text, re.MULTILINE) and question.names_packages:
            raise EnvironmentTrouble(
                f"{what}: uv names no package at all", hint="look at the settings of uv, such as no-emit-package"
            )
        return text

    def _scratch(self, name: str, text: str) -> Path:
        """A file for a tool; nobody else writes it, since one at a time asks."""
        path = self._site.shared / "envs" / "asked" / f"{name}.txt"
        path.write_text(f"{text}\n")
        return path

    def _call(self, what: str, words: list[str]) -> str:
        return self._tools.call(what, words, self._environ, self._question.folder)

    def _install(self, place: Path, python: PythonFacts, lock: Lock) -> None:
        shelf, uv = self._site.shelf, find_uv()
        count = len(packages_of(lock.body))
        packages = f" ({count} package{'s' if count > 1 else ''})" if count else ""
        self._site.tell(f"building environment{packages}")
        lock_path = place.parent / "lock.txt"
        lock_path.write_text(lock.text)
        venv = [uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", python.path, str(place)]
        self._call("no virtual environment could be made", venv)
        if lock.body.strip():
            words = [
                uv,
                "pip",
                "install",
                "--no-deps",
                "--python",
                str(place / "bin" / "python"),
                *self._where,
                "-r",
                str(lock_path),
            ]
            self._install_packages(words)
        file = EnvironmentFile(
            key=lock.key,
            folder=place.name,
            path=str(place),
            python=python.words,
            platform=python.platform,
            base=mark_of(str(place / "bin" / "python")),
            packages=_installed(place),
            size_bytes=_size_bytes(place),
        )
        shelf.write(file)

    def _install_packages(self, words: list[str]) -> None:
        """The lock names what resolving has just asked the index about; where the cache has it all, nobody is asked twice."""
        if self._had_cache and "--offline" not in words:
            said = self._tools.ask([*words, "--offline"], self._environ, self._question.folder, shows_output=False)
            if said.code == 0:
                return
            self._tools.say("not everything is in the cache: the rest is fetched")
        self._call("the packages could not be installed", words)

    def _conda(self) -> str:
        """A conda environment: its file is the question, and what was chosen is read off afterwards."""
        question = self._question
        lock = self._given_lock() if question.lock else None
        key = question.lock or question.name

        def build(place: Path) -> None:
            self._site.tell("building environment (conda)")
            kit = conda.Kit(tools=self._tools, environ=self._environ, folder=question.folder, uv=find_uv())
            made = conda.create(kit, place, lock, question.environment.conda or "")
            (place.parent / "lock.txt").write_text(made.text)
            file = EnvironmentFile(
                key=key,
                folder=place.name,
                path=str(place),
                python=made.head.python,
                platform=made.head.platform,
                packages=conda.package_count(place),
                size_bytes=_size_bytes(place),
            )
            self._site.shelf.write(file)

        self._unless_there(key, build)
        return key


def _sources(question: Question, shared: Path) -> dict[str, str]:
    """Indexes with their credentials, as variables: a command line can be read by everybody on the machine."""
    environment, base = question.environment, question.base
    found = {"UV_CACHE_DIR": base.get("UV_CACHE_DIR") or str(shared / "uv-cache")}
    if environment.index is not None:
        found["UV_DEFAULT_INDEX"] = filled_address(environment.index, base)
        found["UV_INDEX_URL"] = ""
    if environment.extra_indexes:
        found["UV_INDEX"] = " ".join(filled_address(one, base) for one in environment.extra_indexes)
    return found


def filled_address(text: str, values: Mapping[str, str]) -> str:
    """An address with each reference replaced; in its user part as an address writes it, whatever characters a password has."""
    user_part, at, rest = text.rpartition("@")
    quoted = {name: quote(value, safe="%") for name, value in values.items()}
    return filled(user_part, quoted) + at + filled(rest, values)


def _installed(place: Path) -> int:
    return sum(1 for _ in place.glob("lib/*/site-packages/*.dist-info"))


def _size_bytes(place: Path) -> int:
    total = 0
    for root, _, files in os.walk(place):
        for name in files:
            total += os.lstat(os.path.join(root, name)).st_size
    return total
