"""How do jobs differ, and which did best?"""

from __future__ import annotations

from msgspec.structs import replace

from trainmaster.core.compare import (
    Difference,
    best_job,
    differences,
    differing_parameters,
    machine_words,
    metric_names,
    metric_words,
    package_differences,
)
from trainmaster.core.job import Continues, Machine, Phase
from trainmaster.core.metrics import MetricSummary
from trainmaster.spec.job_spec import Input
from trainmaster.testing.builders import a_job, a_placement, a_spec, at


def job(job_id, *, low=None, high=None, metric="loss", **parameters):
    made = a_job(Phase.FINISHED, job_id=job_id, spec=replace(a_spec(), hyperparameters=parameters))
    found = MetricSummary(count=2, last=low, min=low, min_step=3, max=high, max_step=4)
    return replace(made, attempts=(replace(made.current, metrics={metric: found}),))


def test_only_parameters_that_differ():
    jobs = [job("a", lr=0.1, bs=32, extra=1), job("b", lr=0.2, bs=32)]
    assert differing_parameters(jobs) == ["lr", "extra"]
    assert differing_parameters(jobs[:1]) == []


def test_the_commonest_metrics_come_first():
    assert metric_names([job("a"), job("b", metric="accuracy"), job("c")]) == ["loss", "accuracy"]


def test_the_best_is_the_lowest_or_the_highest():
    jobs = [job("a", low=0.3, high=2.0), job("b", low=0.1, high=1.0), job("c", low=0.1, high=2.0), job("d"), job("e", metric="x")]
    lowest, highest = best_job(jobs, "loss", is_lowest=True), best_job(jobs, "loss", is_lowest=False)
    assert lowest is not None
    assert highest is not None
    assert (lowest.job.id, lowest.value, lowest.step) == ("b", 0.1, 3)
    assert (highest.job.id, highest.value, highest.step) == ("a", 2.0, 4)
    assert best_job(jobs, "nothing", is_lowest=True) is None


def test_what_two_jobs_have_differently():
    one = job("a", low=0.5, high=1.0, lr=0.1, opt="adam")
    other = replace(a_job(spec=replace(a_spec(tags={"team": "red"}, priority=3), hyperparameters={"lr": 0.2})))
    found = differences(one, other, at(200))
    assert found[:2] == [Difference("hp.lr", "0.1", "0.2"), Difference("hp.opt", "adam", "")]
    named = {difference.what: difference[1:] for difference in found}
    assert named["priority"] == ("", "3")
    assert named["outcome"] == ("succeeded", "queued")
    assert named["placed on"] == ("local, 1 CPU", "")
    assert named["attempts"] == ("1", "0")
    assert named["metric.loss"] == ("0.5 (0.5 … 1)", "")
    assert named["tag.team"] == ("", "red")
    assert "python" not in named


def test_the_same_job_differs_in_nothing():
    assert differences(job("a", lr=0.1), job("b", lr=0.1), at(200)) == []


def test_hardware_and_nested_fields():
    one, other = (a_job(Phase.RUNNING, spec=a_spec()) for _ in range(2))
    other = replace(
        other,
        spec=replace(other.spec, resources=replace(other.spec.resources, cpus=2)),
        attempts=(replace(other.current, placement=a_placement(cpus=2, gpus=(0, 1))),),
    )
    named = {difference.what: difference.other for difference in differences(one, other, at(10))}
    assert named["resources.cpus"] == "2"
    assert named["placed on"] == "local, 2 CPU, 2 GPU"


def test_a_metric_in_one_cell():
    assert metric_words(MetricSummary(count=1)) == "none (none … none)"


BOX = Machine(host="box", cpu="EPYC", cpus=8, memory=2**34, gpus=("H100", "H100", "L4"))


def test_the_machine_it_ran_on():
    assert machine_words(BOX) == "box, 8 × EPYC, 16.0 GiB, 2 × H100, 1 × L4"
    assert machine_words(None) == ""
    one, other = (a_job(Phase.RUNNING, spec=a_spec()) for _ in range(2))
    other = replace(other, attempts=(replace(other.current, machine=BOX),), seed=7, continues=Continues(job=one.id))
    named = {difference.what: difference[1:] for difference in differences(one, other, at(10))}
    assert named["machine.gpus"] == ("", "H100, H100, L4")
    assert named["machine.cpu"] == ("", "8 × EPYC")
    assert (named["seed"], named["goes on from"]) == (("", "7"), ("", "j7"))


def test_a_signed_address_is_not_shown():
    address = "https://host/{}.csv?X-Amz-Signature=hunter2"
    one, other = (a_job(spec=replace(a_spec(), inputs={"training": Input(uri=address.format(name))})) for name in "ab")
    named = {difference.what: difference[1:] for difference in differences(one, other, at(10))}
    assert named["inputs.training.uri"] == ("https://host/a.csv", "https://host/b.csv")
    assert "hunter2" not in str(named)


def test_packages_from_an_address_differ_too():
    one, other = ("mine @ git+https://ada@host/mine@a1\n", "mine @ git+https://host/mine@b2\n")
    assert package_differences(one, other) == [Difference("mine", "git+https://host/mine@a1", "git+https://host/mine@b2")]


def test_packages_that_differ():
    one = "# made by uv\nnumpy==1.26.4 \\\n    --hash=sha256:aa\ntorch==2.1.0 ; sys_platform == 'linux'\n"
    one += "only_here[x]==1\n--index-url https://i\n"
    other = "Numpy==2.0.0\ntorch==2.1.0\nnew.one==3\n"
    assert package_differences(one, other) == [
        Difference("new-one", "", "3"),
        Difference("numpy", "1.26.4", "2.0.0"),
        Difference("only-here", "1", ""),
    ]
    assert package_differences(one, one) == []
