"""What does a command load? A command must feel instant, and a runner small, so imports are a budget."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cli.terminal import run_cli

pytestmark = pytest.mark.process

#: Never on the laptop's path: the server's libraries, other stores', and what only packing or job files need.
HEAVY = {"rich", "obstore", "psycopg", "pydantic", "httpx", "requests", "http", "email", "multiprocessing", "typing_extensions"}
PACKING = {"zstandard", "tarfile", "yaml"}
LOOP = {"asyncio", "concurrent.futures", "ssl", "logging"}

LOADED = """
import json, sys
from trainmaster.cli.main import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
with open(sys.argv[1], "w") as file:
    json.dump(sorted(sys.modules), file)
"""


def loaded(world, tmp_path, *words) -> set[str]:
    report = tmp_path / "modules.json"
    subprocess.run([sys.executable, "-c", LOADED, report, *words], env=world.environ, cwd=world.source, check=True, timeout=60)
    return set(json.loads(report.read_text()))


def test_help_loads_next_to_nothing(strict, tmp_path):
    for words in (["--help"], ["--version"]):
        modules = loaded(strict, tmp_path, *words)
        assert modules & (HEAVY | PACKING | LOOP | {"sqlite3", "subprocess", "socket"}) == set()
        ours = {name for name in modules if name.startswith("trainmaster")}
        assert not {name for name in ours if name.split(".")[1:2] in (["core"], ["control"], ["adapters"], ["spec"])}


@pytest.mark.parametrize("words", ["list", "list --json"])
def test_list_loads_what_it_needs(strict, tmp_path, words):
    modules = loaded(strict, tmp_path, *words.split())
    assert modules & (HEAVY | PACKING) == set()
    assert not {name for name in modules if name.startswith("trainmaster.runner")}


def test_looks_load_no_more(scene, tmp_path):
    for words in (("show", scene.good), ("logs", scene.good), ("why", scene.good), ("metrics", scene.good), ("wait", scene.good)):
        assert loaded(scene.world, tmp_path, *words) & (HEAVY | PACKING) == set(), words


def test_a_fleet_that_is_not_used_is_not_loaded(world, tmp_path):
    world.write("train.py", "print('hello')")
    modules = loaded(world, tmp_path, "run", "train.py")
    assert "trainmaster.adapters.providers.local.provider" in modules
    assert not {name for name in modules if name.startswith("trainmaster.adapters.providers.simulated")}
    assert not (world.home / "simulated").exists()


def test_the_runner_knows_only_the_store(scene):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trainmaster.runner"], env=scene.world.environ, capture_output=True, timeout=60
    )
    lines = done.stderr.decode().splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "trainmaster.runner.main" in modules
    modules.discard("typing_extensions")  # tried and refused: quick_imports.py; importtime counts the try
    assert modules & (HEAVY | LOOP | {"sqlite3", "yaml", "click", "tarfile", "inspect"}) == set()
    assert not {name for name in modules if name.startswith(("trainmaster.control", "trainmaster.cli", "trainmaster.embedded"))}


def test_a_living_runner_has_loaded_no_more(scene):
    """Its libraries, as the kernel sees them: what is loaded late counts too."""
    maps = open_maps(scene.world.runner_pid(scene.running))
    assert "_blake3" in maps or "blake3" in maps, "we looked at the right process"
    for library in ("_ssl", "_sqlite3", "_asyncio", "obstore", "_yaml", "libssl"):
        assert library not in maps


def open_maps(pid: int) -> str:
    with open(f"/proc/{pid}/maps") as file:
        return file.read()


def test_a_command_is_done_within_its_budget(strict):
    """CPU seconds of `--help`, the best of five: machines are busy at times."""
    import resource

    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_cli(strict, "--help").code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.25, spent
