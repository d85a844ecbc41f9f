"""What may go, who needs whom, and which part of a job is it?"""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from trainmaster.core.house import (
    CodeLink,
    ContinuesLink,
    Item,
    JobLinks,
    Plan,
    code_of,
    codes_in_use,
    job_of,
    needs_checkpoint_of,
    part_of,
    references,
    thinned,
    why_kept,
)
from trainmaster.core.job import Outcome, Phase, StudyRef
from trainmaster.core.messages import job_file
from trainmaster.spec import layout
from trainmaster.spec.layout import Key
from trainmaster.testing.builders import a_job


def links(job_id, *, continues=None, study=None, code=None, phase=Phase.FINISHED):
    from_job = None if continues is None else ContinuesLink(job=continues, checkpoint={"id": "1-000001"})
    return JobLinks(id=job_id, phase=phase, code=CodeLink(code), continues=from_job, study=study)


def finished(job_id):
    return replace(a_job(Phase.FINISHED), id=job_id)


def test_a_job_is_needed_by_who_may_restore_its_checkpoint():
    further = ContinuesLink(job="b", checkpoint={"id": "1-000001"}, checkpoint_of="a")
    jobs = [
        links("a"),
        links("b", continues="a"),
        replace(links("c"), continues=further),
        links("d", study=StudyRef(id="sweep", index=1)),
    ]
    assert references(jobs) == {"a": ("b", "c")}


def test_which_job_still_needs_anothers_checkpoint():
    job = links("b", continues="a")
    assert needs_checkpoint_of(job) == "a"
    assert needs_checkpoint_of(replace(job, head={"id": "1-000001"})) is None
    assert needs_checkpoint_of(replace(job, outcome=Outcome.SUCCEEDED)) is None
    assert needs_checkpoint_of(replace(job, outcome=Outcome.STOPPED)) == "a"
    assert needs_checkpoint_of(links("b")) is None
    assert needs_checkpoint_of(replace(job, continues=ContinuesLink(job="a"))) is None, "that one had none"


def test_what_a_study_has_finished_stays_until_it_is_over():
    done, waits = StudyRef(id="sweep", index=1), StudyRef(id="sweep", index=2)
    child = replace(finished("a"), study=done)
    others = [links("a", study=done), links("x", phase=Phase.QUEUED), links("y", study=StudyRef(id="other", index=1))]
    assert why_kept([child], [*others, links("b", study=waits)]) == {}
    unfinished = [*others, links("b", study=waits, phase=Phase.QUEUED)]
    assert why_kept([child], unfinished) == {"a": "b of its study has not finished"}
    running = replace(a_job(Phase.RUNNING), id="b", study=waits)
    assert why_kept([running], unfinished) == {"b": "it has not finished"}


def test_who_was_submitted_together_needs_the_first_until_it_is_over():
    batch = StudyRef(id="sweep", index=1, batch="a")
    assert references([links("a", study=batch), links("b", study=batch)]) == {}
    assert references([links("c", study=StudyRef(id="sweep", index=2), phase=Phase.QUEUED)]) == {}  # resumed by itself
    assert references([links("a", study=batch), links("b", study=batch, phase=Phase.QUEUED)]) == {"a": ("b",)}


def test_what_a_record_says_is_read_whatever_else_it_has():
    text = b'{"v":1,"id":"b","phase":"finished","code":{"sha256":"f00d"},"continues":{"job":"a","checkpoint":{"id":1}},"new":1}'
    read = msgspec.json.decode(text, type=JobLinks)
    assert references([read]) == {"a": ("b",)}
    assert codes_in_use([read, links("x")]) == {"f00d"}
    assert msgspec.json.decode(msgspec.json.encode(a_job()), type=JobLinks).id == a_job().id
    in_store = msgspec.json.decode(msgspec.json.encode(job_file(a_job())), type=JobLinks)
    assert (in_store.id, in_store.code.sha256) == (a_job().id, a_job().code.sha256)


def test_who_is_needed_by_one_that_stays_stays():
    chain = [links("a"), links("b", continues="a"), links("c", continues="b")]
    assert why_kept([finished("a")], chain) == {"a": "b needs it"}
    assert why_kept([finished("a"), finished("b")], chain) == {"a": "b needs it", "b": "c needs it"}
    assert why_kept([finished(name) for name in "abc"], chain) == {}
    assert why_kept([], chain) == {}


def test_who_has_not_finished_stays_with_whom_it_needs():
    running = replace(a_job(Phase.RUNNING), id="b")
    assert why_kept([finished("a"), running], [links("a"), links("b", continues="a")]) == {
        "a": "b needs it",
        "b": "it has not finished",
    }


@pytest.mark.parametrize(
    ("rest", "part"),
    [
        ("checkpoints/1-000001/files/model/x", "checkpoints"),
        ("checkpoints/1-000001/COMMIT", "checkpoints"),
        ("attempts/1/0/log/00000000", "logs"),
        ("attempts/1/0/metrics/00000000", "logs"),
        ("attempts/1/0/exit.json", "other"),
        ("attempts/1/claim", "other"),
        ("model/a/log/b", "model"),
        ("output/x", "output"),
        ("working/x", "output"),
        ("tensorboard/x", "output"),
        ("spec.json", "other"),
        ("model", "other"),
    ],
)
def test_each_object_belongs_to_one_part(rest, part):
    assert part_of("j", f"jobs/j/{rest}") == part


def test_a_thinned_job_keeps_record_metrics_and_model():
    gone = ["checkpoints/1-000001/COMMIT", "attempts/2/0/log/00000000", "attempts/2/0/log/00000001", "output/log/x", "working/w"]
    stays = [
        "attempts/2/0/metrics/00000000",
        "attempts/2/0/exit.json",
        "model/m",
        "spec.json",
        "record.json",
        "pruned.json",
        "output",
    ]
    keys = [Key(f"jobs/j/{rest}") for rest in [*gone, *stays]]
    prefixes = thinned("j", keys)
    assert prefixes == ["jobs/j/checkpoints", "jobs/j/attempts/2/0/log", "jobs/j/output", "jobs/j/working"]
    assert [k for k in keys if any(k.startswith(f"{p}/") for p in prefixes)] == [f"jobs/j/{rest}" for rest in gone]
    assert thinned("j", [Key(f"jobs/j/{rest}") for rest in stays]) == []


def test_keys_say_whose_they_are():
    assert job_of(layout.spec("j")) == "j"
    assert job_of("jobs/j") is None
    assert job_of("code/j/x") is None
    assert code_of(layout.code("f00d")) == "f00d"
    assert code_of("code/a/b.tar.zst") is None
    assert code_of("jobs/j/spec.json") is None


def test_a_plan_adds_up():
    assert Plan(items=(Item(kind="job", name="a", size_bytes=2), Item(kind="code", name="b", size_bytes=3))).size_bytes == 5
