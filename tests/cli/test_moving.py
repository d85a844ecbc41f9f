"""`export` and `import`: a job is the same elsewhere, and an archive made by hand is refused."""

from __future__ import annotations

import io
import json
import os
import tarfile

import pytest
from blake3 import blake3
from cli.terminal import CURVE, refused, run_cli, strays
from process.packages import make_wheel
from process.scripts import COUNT
from process.world import World

pytestmark = pytest.mark.process


@pytest.fixture
def elsewhere(tmp_path):
    made = World(tmp_path / "elsewhere")
    yield made
    made.close()


@pytest.fixture(scope="session")
def exported(scene, tmp_path_factory):
    """A good archive; tests change copies of it."""
    path = tmp_path_factory.mktemp("exported") / "good.tar"
    scene.world.cli("export", scene.good, "-o", str(path))
    return path


def members(path):
    """Name → contents, in order."""
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}


def write(path, contents, *, sealed=True):
    """An archive with these contents; `sealed`: with a manifest that fits them, as a liar would write it."""
    contents = dict(contents)
    manifest = json.loads(contents.pop("manifest.json"))
    if sealed:
        manifest["files"] = [
            {"path": name, "size_bytes": len(value), "blake3": blake3(value).hexdigest()} for name, value in contents.items()
        ]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, value in {**contents, "manifest.json": json.dumps(manifest).encode()}.items():
            info = tarfile.TarInfo(name)
            info.size = len(value)
            tar.addfile(info, io.BytesIO(value))
    return path


def objects(world):
    """Everything in the store of a world."""
    return {str(path.relative_to(world.store)): path.read_bytes() for path in world.store.rglob("*") if path.is_file()}


def test_a_job_is_the_same_elsewhere(scene, exported, elsewhere):
    answer = run_cli(elsewhere, "import", str(exported))
    assert (answer.code, answer.out.startswith(f"{scene.good}: ")) == (0, True)
    for words in (("show",), ("logs",), ("metrics",), ("checkpoints",), ("compare",)):
        here, there = (run_cli(world, words[0], scene.good, "--json").out for world in (scene.world, elsewhere))
        assert here == there, words
    here, there = (world.json("why", scene.good) for world in (scene.world, elsewhere))
    assert there[:-1] == here
    assert there[-1]["event"] == "imported"
    for part in ("model", "working", "checkpoint", "code", "logs"):
        assert run_cli(elsewhere, "pull", scene.good, part, "--only", part).code == 0
    assert (elsewhere.source / "checkpoint" / "checkpoint" / "state").read_text() == "5"
    own = elsewhere.wait(elsewhere.submit(elsewhere.job_file(CURVE, name="own")))["id"]
    assert run_cli(elsewhere, "diff", scene.good, own).code == 0
    again = run_cli(elsewhere, "import", str(exported))
    assert (again.code, again.out) == (0, f"{scene.good} is here already\n")
    assert elsewhere.json("import", str(exported))[0]["was_here"] is True
    assert elsewhere.json("export", scene.good, "-o", "again.tar")[0]["job"] == scene.good
    first, second = members(exported), members(elsewhere.source / "again.tar")
    assert {n: v for n, v in first.items() if n.startswith(("store/", "record", "code"))} == {
        n: v for n, v in second.items() if n.startswith(("store/", "record", "code"))
    }
    elsewhere.cli("delete", "--yes", scene.good)
    assert elsewhere.json("import", str(exported))[0]["was_here"] is False


def test_what_is_in_an_archive(scene, exported, tmp_path):
    found = members(exported)
    assert list(found)[-1] == "manifest.json"
    assert {"record.json", "story.jsonl", "code.tar.zst", "store/model/model.bin", "store/record.json"} <= found.keys()
    manifest = json.loads(found["manifest.json"])
    assert {file["path"]: file["size_bytes"] for file in manifest["files"]} == {
        name: len(value) for name, value in found.items() if name != "manifest.json"
    }
    small = tmp_path / "small.tar"
    scene.world.cli("export", scene.good, "-o", str(small), "--no-checkpoints")
    assert not [name for name in members(small) if "checkpoints" in name]


def test_export_refuses(scene, tmp_path):
    world = scene.world
    refused(world, "export", scene.running, "-o", str(tmp_path / "x.tar"), says=["has not finished", "trainmaster wait"])
    (tmp_path / "there.tar").write_text("mine")
    refused(world, "export", scene.good, "-o", str(tmp_path / "there.tar"), says=["is there already", "--force"])
    assert (tmp_path / "there.tar").read_text() == "mine"
    refused(world, "export", scene.good, scene.bad, "-o", str(tmp_path / "one.tar"), says=["-o: found", "wanted a folder"])
    refused(world, "export", scene.good, "-o", str(tmp_path / "no" / "x.tar"), says=["is not a folder"])
    refused(world, "export", scene.good, "-o", "-", says=["standard output"])
    both = world.json("export", scene.good, scene.bad, "-o", str(tmp_path))
    assert [os.path.basename(one["file"]) for one in both] == [f"{scene.good}.tar", f"{scene.bad}.tar"]
    assert sorted(os.listdir(tmp_path)) == sorted([f"{scene.good}.tar", f"{scene.bad}.tar", "there.tar"])


def changed(name, value):
    return lambda found: {**found, name: value}


def in_json(name, **fields):
    return lambda found: {**found, name: json.dumps({**json.loads(found[name]), **fields}).encode()}


def both_records(**fields):
    def change(found):
        value = json.dumps({**json.loads(found["record.json"]), **fields}).encode()
        return {**found, "record.json": value, "store/record.json": value}

    return change


LIES = {
    "an unknown file": (changed("readme.txt", b"hi"), "readme.txt does not belong into it"),
    "a path that leads out": (changed("store/../../escape", b"x"), "leads out of it"),
    "an absolute path": (changed("/etc/escape", b"x"), "leads out of it"),
    "a file that is a folder": (changed("store/model/model.bin/x", b"x"), "a file and a folder at once"),
    "no record": (lambda found: {n: v for n, v in found.items() if n != "record.json"}, "record.json is missing"),
    "a record that is none": (changed("record.json", b"[1"), "record.json cannot be read"),
    "a newer record": (both_records(v=2), "its record has version 2"),
    "an odd id": (both_records(id="../../x"), "the id in its record"),
    "an id of another": (both_records(id="other-abcde"), "the id in its record"),
    "an odd phase": (both_records(phase="sleeping"), "record.json cannot be read"),
    "an unfinished job": (both_records(phase="queued"), "has not finished in it"),
    "no outcome": (both_records(outcome=None), "its record cannot be"),
    "another sealed record": (in_json("store/record.json", failures=0, waits_for="x"), "is the record of another job"),
    "another spec": (in_json("store/spec.json", id="other"), "belongs to another job"),
    "code of another": (changed("code.tar.zst", b"\x28\xb5\x2f\xfd\xa0\x01\x00\x00\x00\x09\x00\x00x"), "is not the code"),
    "code that is none": (changed("code.tar.zst", b"garbage" * 99), "code.tar.zst cannot be read"),
    "a garbage marker": (changed("store/checkpoints/1-000001/COMMIT", b"\xff"), "belongs to another checkpoint"),
    "a manifest that leads out": (
        lambda found: {
            **found,
            "store/checkpoints/1-000001/manifest.json": found["store/checkpoints/1-000001/manifest.json"].replace(
                b'"path":"state"', b'"path":"../state"'
            ),
        },
        "names files outside of it",
    ),
    "garbage metrics": (changed("store/attempts/1/0/metrics/00000000", b"loss\n"), "cannot be read"),
    "a garbage exit": (changed("store/attempts/1/0/exit.json", b"{}"), "exit.json cannot be read"),
    "a lock of another": (changed("lock.txt", b'# trainmaster: {"kind":"uv"}\nevil==1.0\n'), "lock.txt is not that of"),
    "a lock that is none": (changed("lock.txt", b"evil==1.0\n"), "lock.txt cannot be read"),
    "wheels of another": (changed("wheels.json", b"{}"), "wheels.json is not that of the job"),
    "a wheel of nobody": (changed("wheels/evil-1.0-py3-none-any.whl", b"x"), "wheels.json is not that of the job"),
    "a garbage story": (changed("story.jsonl", b"once upon a time\n"), "story.jsonl cannot be read"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_archive_made_by_hand_is_refused(exported, elsewhere, tmp_path, lie):
    change, says = LIES[lie]
    path = write(tmp_path / "lie.tar", change(members(exported)))
    elsewhere.cli("list")
    refused(elsewhere, "import", str(path), says=["lie.tar is refused: ", says])
    assert strays(elsewhere) == []
    assert not list(elsewhere.store.glob("code/*"))
    assert not list(tmp_path.glob("**/escape"))


def test_an_archive_that_was_changed_is_refused(exported, elsewhere, tmp_path):
    found = members(exported)
    path = tmp_path / "changed.tar"
    elsewhere.cli("list")
    write(path, {**found, "store/model/model.bin": b"1" * 1000}, sealed=False)
    refused(elsewhere, "import", str(path), says=["store/model/model.bin was changed"])
    write(path, {n: v for n, v in found.items() if n != "store/model/model.bin"}, sealed=False)
    refused(elsewhere, "import", str(path), says=["store/model/model.bin is missing"])
    write(path, {**found, "store/model/more": b"x"}, sealed=False)
    refused(elsewhere, "import", str(path), says=["store/model/more is not named in manifest.json"])
    whole = exported.read_bytes()
    for length in (0, 100, 512, 5000, len(whole) // 2, len(whole) - 1500):
        path.write_bytes(whole[:length])
        refused(elsewhere, "import", str(path), says=["changed.tar is refused: "])
    path.write_bytes(whole + b"more")
    refused(elsewhere, "import", str(path), says=["something follows its end"])
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    path.write_bytes(flipped)
    refused(elsewhere, "import", str(path), says=["is refused"])


def special(kind, **fields):
    info = tarfile.TarInfo("store/model/special")
    info.type = kind
    for name, value in fields.items():
        setattr(info, name, value)
    return info


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (special(tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link"),
        (special(tarfile.LNKTYPE, linkname="record.json"), "is a hard link"),
        (special(tarfile.DIRTYPE), "is a folder"),
        (special(tarfile.FIFOTYPE), "is a pipe"),
        (special(tarfile.CHRTYPE), "is a device"),
        (special(tarfile.GNUTYPE_SPARSE), "is no plain file"),
        (special(tarfile.XHDTYPE), "is no plain file"),
    ],
)
def test_only_plain_files_are_taken(exported, elsewhere, tmp_path, info, says):
    path = tmp_path / "special.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(info)
    elsewhere.cli("list")
    refused(elsewhere, "import", str(path), says=[says])


def test_a_header_that_promises_more_than_there_is(elsewhere, tmp_path):
    path = tmp_path / "bomb.tar"
    for name, size in (("record.json", 1 << 40), ("store/model/x", 1 << 50)):
        info = tarfile.TarInfo(name)
        info.size = size
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"x" * 4096)
        refused(elsewhere, "import", str(path), says=["is too large" if name == "record.json" else "it is cut off"])


def test_code_that_grows_without_end_is_refused(exported, elsewhere, tmp_path):
    """Four gigabytes of nothing take a few hundred kilobytes."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=3).compressobj()
    bomb = b"".join(compressor.compress(bytes(64 << 20)) for _ in range(72)) + compressor.flush()
    path = write(tmp_path / "bomb.tar", {**members(exported), "code.tar.zst": bomb})
    refused(elsewhere, "import", str(path), says=["grows beyond all bounds"])


def test_files_that_are_no_archives(strict, tmp_path):
    refused(strict, "import", str(tmp_path / "nothing"), says=["FILE: ", "No such file"])
    refused(strict, "import", str(tmp_path), says=["is not a file"])
    (tmp_path / "text").write_text("hello " * 1000)
    refused(strict, "import", str(tmp_path / "text"), says=["it is no tar archive"])
    with tarfile.open(tmp_path / "pax.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"x": "y"}) as tar:
        tar.add(tmp_path / "text", "text")
    refused(strict, "import", str(tmp_path / "pax.tar"), says=["is no plain file"])
    with tarfile.open(tmp_path / "plain.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(tmp_path / "text", "text")
    refused(strict, "import", str(tmp_path / "plain.tar"), says=["it has no manifest.json", "trainmaster export"])


def test_another_job_of_the_same_id_is_not_overwritten(scene, exported, elsewhere, tmp_path):
    elsewhere.cli("import", str(exported))
    before, files = elsewhere.record(scene.good), objects(elsewhere)
    other = both_records(waits_for="something else")({**members(exported), "store/model/model.bin": b"other"})
    refused(elsewhere, "import", str(write(tmp_path / "other.tar", other)), says=["there is another job", scene.good])
    assert (elsewhere.record(scene.good), objects(elsewhere)) == (before, files)


def test_files_of_another_home_are_not_overwritten(scene, exported, elsewhere):
    elsewhere.cli("list")
    foreign = elsewhere.store / "jobs" / scene.good / "spec.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("theirs")
    answer = run_cli(elsewhere, "import", str(exported))
    assert (answer.code, "that this home does not know" in answer.said) == (2, True)
    assert foreign.read_text() == "theirs"


def test_a_large_file_moves_in_bounded_memory(world, elsewhere, tmp_path):
    script = 'import os\nwith open(os.environ["SM_MODEL_DIR"] + "/m", "wb") as f:\n    f.write(os.urandom(1 << 20) * 300)\n'
    job = world.wait(world.submit(world.job_file(script)))["id"]
    limit = ["prlimit", f"--data={200 << 20}"]
    world.prefix = elsewhere.prefix = limit
    world.cli("export", job, "-o", str(tmp_path / "large.tar"))
    elsewhere.cli("import", str(tmp_path / "large.tar"))
    name = f"jobs/{job}/model/m"
    assert blake3((world.store / name).read_bytes()).digest() == blake3((elsewhere.store / name).read_bytes()).digest()


def test_an_archive_may_be_larger_than_our_memory(exported, elsewhere, tmp_path):
    """What is looked at is not kept."""
    line = json.dumps({"step": 1, "note": "x" * 1_000_000}).encode() + b"\n"
    chunks = {f"store/attempts/1/0/metrics/{n:08d}": line * 10 for n in range(100, 130)}
    path = write(tmp_path / "large.tar", {**members(exported), **chunks})
    elsewhere.prefix = ["prlimit", f"--data={200 << 20}"]
    elsewhere.cli("import", str(path))


def test_a_job_with_an_environment_can_be_run_again_elsewhere(world, elsewhere, tmp_path):
    """With its lock and its wheels it needs no index."""
    make_wheel(tmp_path / "house", "alpha", "3.0")
    nowhere = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    world.environ.update(nowhere)
    elsewhere.environ.update(nowhere)
    given = {"requirements": ["alpha"], "wheels": str(tmp_path / "house")}
    job = world.wait(world.submit(world.job_file("import alpha\nprint('alpha', alpha.VERSION)", environment=given)))["id"]
    world.cli("export", job, "-o", str(tmp_path / "job.tar"))
    (tmp_path / "house" / "alpha-3.0-py3-none-any.whl").unlink()
    found = members(tmp_path / "job.tar")
    assert {"lock.txt", "wheels.json", "wheels/alpha-3.0-py3-none-any.whl"} <= found.keys()
    worse = write(tmp_path / "worse.tar", {**found, "wheels/alpha-3.0-py3-none-any.whl": b"x"})
    refused(elsewhere, "import", str(worse), says=["is not the wheel of that name"])
    poisoned = write(tmp_path / "poisoned.tar", {**found, "lock.txt": found["lock.txt"] + b"evil==1.0\n"})
    refused(elsewhere, "import", str(poisoned), says=["lock.txt is not that of the environment"])
    assert not list(elsewhere.store.glob("envs/*"))
    elsewhere.cli("import", str(tmp_path / "job.tar"))
    again = elsewhere.json("rerun", job)
    assert elsewhere.wait(again["id"])["outcome"] == "succeeded"
    assert "alpha 3.0" in elsewhere.log(again["id"])


def test_importing_while_jobs_run(exported, world):
    job = world.submit(world.job_file(COUNT, arguments=["1"]))
    world.until_attempt(job, 1)
    world.cli("import", str(exported))
    assert len(world.json("list")) == 2
    world.open_gate(1)
    assert world.wait(job)["outcome"] == "succeeded"


def test_a_job_of_a_study_is_listed_where_its_study_is_not(world, elsewhere, tmp_path):
    script = COUNT.replace("int(sys.argv[1])", "9")
    study = world.json("study", world.job_file(script, name="sweep"), "--grid", "a=1,2", "--detach")["study"]["id"]
    world.open_gate(1)
    world.until_committed(f"{study}-2", "1")
    world.cli("stop", study, "--wait")
    new = world.json("resume", f"{study}-2", "--detach")["id"]
    world.until_attempt(new, 1)
    world.cli("stop", new, "--wait")
    assert world.commits(new) == []
    world.cli("export", new, "-o", str(tmp_path / "one.tar"))
    elsewhere.cli("import", str(tmp_path / "one.tar"))
    assert new in elsewhere.cli("list").stdout.decode()
    said = " ".join(elsewhere.cli("resume", new, expect=2).stderr.decode().split())
    assert f"of {study}-2, from which {new} would go on, is not in the store" in said
    assert elsewhere.ids() == [new]
