"""Environments built by the real uv: what must stay while one is built, what is refused, and what is left by a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from process.packages import make_wheel

from trainmaster.adapters.environments.builder import Site, keep_lock, provide
from trainmaster.adapters.environments.housekeeping import EnvironmentHouse
from trainmaster.adapters.environments.question import Question
from trainmaster.adapters.environments.shelf import Shelf
from trainmaster.adapters.environments.tool import Tools
from trainmaster.adapters.environments.trouble import EnvironmentTrouble
from trainmaster.adapters.environments.wheelhouse import stage_wheels
from trainmaster.adapters.folder_store import open_folder
from trainmaster.spec import layout
from trainmaster.spec.job_spec import Environment

#: removes wheels, and is killed before the so-and-so-many-th thing goes
KILLED_REMOVAL = """
import os, signal, sys
from pathlib import Path
from trainmaster.adapters.environments import housekeeping

left = int(sys.argv[2])

def hook(event, _):
    global left
    if event in ("os.remove", "os.rmdir"):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
housekeeping.EnvironmentHouse(Path(sys.argv[1]).parent).prune(1e12, with_cache=False, dry_run=False)
"""


class Bench:
    """A store, a folder that jobs share, and builds in it."""

    def __init__(self, folder):
        self.folder, self.shared = folder, folder / "shared"
        self.store = open_folder(str(folder / "store"), create=True)
        self.base = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV"))}
        self.log = []

    def question(self, **asked):
        environment = asked.pop("environment", None) or Environment(requirements=["alpha"])
        (self.folder / "source").mkdir(exist_ok=True)
        return Question(environment=environment, folder=self.folder / "source", python=sys.executable, base=self.base, **asked)

    def site(self, question, tell=lambda _: None):
        return Site(shared=self.shared, store=self.store, tools=Tools(self.log.append, question.secrets, lambda: True), tell=tell)

    def staged(self, *names):
        """Wheels of these names in the store."""
        for name in names:
            make_wheel(self.folder / "wheels", name)
        return stage_wheels(self.folder / "wheels", self.store, lambda *_: None)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


class TestWheels:
    def test_those_of_a_build_under_way_stay(self, bench):
        def prune(doing):
            if doing.startswith("building"):
                EnvironmentHouse(bench.shared).prune(time.time() + 60, with_cache=False, dry_run=False)

        question = bench.question(wheelhouse=bench.staged("alpha"))
        held = provide(question, bench.site(question, prune))
        held.let_go()
        assert held.file.packages == 1

    def test_those_used_a_moment_ago_stay(self, bench):
        sha256 = bench.staged("alpha")
        question = bench.question(wheelhouse=sha256)
        provide(question, bench.site(question)).let_go()
        place = bench.shared / "wheels" / sha256
        for path in (place, *place.iterdir()):
            os.utime(path, (1, 1))
        other = bench.question(wheelhouse=sha256, environment=Environment(requirements=["alpha==1.0", "alpha"]))
        provide(other, bench.site(other)).let_go()
        EnvironmentHouse(bench.shared).prune(time.time() - 60, with_cache=False, dry_run=False)
        assert (place / "alpha-1.0-py3-none-any.whl").exists()
        EnvironmentHouse(bench.shared).prune(time.time() + 60, with_cache=False, dry_run=False)
        assert not place.exists()

    @pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
    def test_a_removal_that_was_killed_leaves_none_that_are_taken_for_all(self, bench, number):
        sha256 = bench.staged("alpha", "beta")
        question = bench.question(wheelhouse=sha256, environment=Environment(requirements=["alpha", "beta"]))
        held = provide(question, bench.site(question))
        held.let_go()
        assert Shelf(bench.shared / "envs").remove(held.file.key)
        done = subprocess.run([sys.executable, "-c", KILLED_REMOVAL, bench.shared / "wheels", str(number)], check=False)
        assert done.returncode == -signal.SIGKILL
        held = provide(question, bench.site(question))
        held.let_go()
        assert held.file.packages == 2


class TestLocks:
    def test_one_that_names_nothing_of_what_was_asked_for_is_refused(self, bench):
        question = bench.question(wheelhouse=bench.staged("alpha"))
        (bench.folder / "source" / "uv.toml").write_text('[pip]\nno-emit-package = ["alpha"]\n')
        with pytest.raises(EnvironmentTrouble, match="names no package at all"):
            provide(question, bench.site(question))

    def test_nothing_may_be_asked_for_on_this_machine(self, bench):
        asked = Environment(requirements=["alpha; sys_platform == 'win32'"])
        question = bench.question(wheelhouse=bench.staged("alpha"), environment=asked)
        held = provide(question, bench.site(question))
        held.let_go()
        assert held.file.packages == 0

    def built(self, bench):
        question = bench.question(wheelhouse=bench.staged("alpha"))
        held = provide(question, bench.site(question))
        keep_lock(held, bench.site(question))
        held.let_go()
        return held.file.key

    def test_one_that_was_changed_is_not_installed(self, bench):
        key = self.built(bench)
        text = bench.store.get(layout.environment_lock(key))
        bench.store.put(layout.environment_lock(key), text.replace(b"alpha==1.0", b"alpha==6.6"))
        question = bench.question(lock=key)
        with pytest.raises(EnvironmentTrouble, match="was changed"):
            provide(question, bench.site(question))

    def test_one_that_the_store_has_lost_is_taken_from_the_shelf_and_put_there_again(self, bench):
        key = self.built(bench)
        text = bench.store.get(layout.environment_lock(key))
        bench.store.delete_prefix(layout.Key(f"envs/{key}"))
        question = bench.question(lock=key)
        held = provide(question, bench.site(question))
        keep_lock(held, bench.site(question))
        held.let_go()
        assert held.file.key == key
        assert bench.store.get(layout.environment_lock(key)) == text
