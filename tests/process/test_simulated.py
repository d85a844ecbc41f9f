"""Machines of the simulated fleet are taken back, killed and stopped, for real: the job goes on from what was committed."""

from __future__ import annotations

import json
import signal

import pytest
from process.scripts import COUNT, FAMILY, STUBBORN
from process.world import is_alive

from trainmaster.adapters import host

pytestmark = pytest.mark.process

#: Saves nothing until it is told to end.
SAVES_IN_THE_NOTICE = """
import os, signal, sys, time
path = os.path.join(os.environ["TM_CHECKPOINT_DIR"], "state")
found = open(path).read() if os.path.exists(path) else "nothing"
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
print(f"attempt {os.environ['TM_ATTEMPT']} pid {os.getpid()} restored {found}", flush=True)
while found == "nothing" and not told:
    time.sleep(0.01)
if told:
    open(path, "w").write("all of it")
    sys.exit(143)
"""


@pytest.fixture
def fleet(world):
    """Machines come at once, and are taken back when a test says so."""
    world.environ |= {"TRAINMASTER_SIMULATED_BOOT_S": "0.1", "TRAINMASTER_SIMULATED_PREEMPT_S": "0"}
    return world


def on_fleet(world, script, **fields):
    return world.submit(world.job_file(script, provider="simulated", **fields))


def machine_pid(world, job, attempt=1):
    file = world.home / "simulated" / "machines" / f"{job}-a{attempt}" / "process.json"
    return int(json.loads(world.until("the machine is switched on", lambda: file.exists() and file.read_bytes()))["pid"])


def take_back(world, job, attempt=1):
    """Bring the machine's fate forward."""
    pid = machine_pid(world, job, attempt)
    host.kill_all([pid], signal.SIGUSR2)
    return pid


def reason(record, attempt=1):
    return record["attempts"][attempt - 1]["ending"]["reason"]


def test_a_job_begins_and_ends_on_a_simulated_machine(fleet):
    job = on_fleet(fleet, COUNT, arguments=["2"])
    fleet.open_gate(2)
    record = fleet.wait(job)
    assert (record["outcome"], len(record["attempts"]), record["interruptions"]) == ("succeeded", 1, 0)
    assert record["attempts"][0]["placement"]["provider"] == "simulated"
    assert list((fleet.home / "simulated" / "machines").iterdir()) == []


def test_preempted_with_notice_it_goes_on_from_what_was_saved_in_the_notice(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_NOTICE_S"] = "30"
    job = on_fleet(fleet, SAVES_IN_THE_NOTICE)
    fleet.until_attempt(job, 1)
    assert fleet.commits(job) == []
    take_back(fleet, job)
    record = fleet.wait(job)
    assert "restored all of it\n" in fleet.log(job, 2)
    assert (record["outcome"], record["failures"], record["interruptions"]) == ("succeeded", 0, 1)
    assert reason(record)["code"] == "preempted"
    [line] = [line for line in fleet.story(job) if line["event"] == "interrupted"]
    assert "preempted by the fleet" in line["sentence"]
    assert "with 30 s of notice" in line["evidence"]["seen"]
    assert "preempted by the fleet" in fleet.cli("why", job).stdout.decode()


def test_preempted_without_notice_it_goes_on_from_the_last_commit(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_NOTICE_S"] = "0"
    job = on_fleet(fleet, FAMILY, arguments=["4"])
    fleet.open_gate(2)
    fleet.until_committed(job, "2")
    script, family = fleet.script_pid(job), fleet.family()
    machine = take_back(fleet, job)
    fleet.until_attempt(job, 2)
    assert not any(map(is_alive, [machine, script, *family]))
    assert "restored 2\n" in fleet.log(job, 2)
    fleet.open_gate(4)
    record = fleet.wait(job)
    assert (record["outcome"], record["failures"], record["interruptions"]) == ("succeeded", 0, 1)
    assert reason(record)["code"] == "preempted"
    assert "without notice" in reason(record)["sentence"]


def test_what_ignores_the_notice_is_gone_when_it_is_over(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_NOTICE_S"] = "0.5"
    job = on_fleet(fleet, STUBBORN, retry={"interruptions": 0})
    script, family = fleet.script_pid(job), fleet.family()
    take_back(fleet, job)
    record = fleet.wait(job, expect=1)
    assert not any(map(is_alive, [script, *family]))
    assert (record["outcome"], record["reason"]["code"]) == ("failed", "preempted")


def test_preempted_while_it_boots_it_is_tried_again(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_BOOT_S"] = "300"
    job = on_fleet(fleet, COUNT, arguments=["1"])
    fleet.open_gate(1)
    machine_pid(fleet, job)
    fleet.kill_drivers()
    take_back(fleet, job)
    fleet.environ["TRAINMASTER_SIMULATED_BOOT_S"] = "0"
    record = fleet.wait(job)
    assert (record["outcome"], record["interruptions"]) == ("succeeded", 1)
    assert "while it booted" in reason(record)["sentence"]


def test_the_clock_takes_machines_back_and_lets_later_ones_live_longer(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_PREEMPT_S"] = "1"
    job = on_fleet(fleet, COUNT, arguments=["3"])
    fleet.open_gate(1)
    fleet.until_attempt(job, 2)
    fleet.open_gate(3)
    record = fleet.wait(job)
    assert record["outcome"] == "succeeded"
    assert record["interruptions"] == len(record["attempts"]) - 1 >= 1
    assert {reason(record, n)["code"] for n in range(1, len(record["attempts"]))} == {"preempted"}


def test_a_stop_while_the_machine_boots_leaves_nothing(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_BOOT_S"] = "300"
    job = on_fleet(fleet, COUNT, arguments=["1"])
    machine = machine_pid(fleet, job)
    fleet.until("it is starting", lambda: fleet.record(job)["phase"] == "starting")
    fleet.cli("stop", "--wait", job)
    assert fleet.record(job)["outcome"] == "stopped"
    assert not is_alive(machine)
    assert fleet.log(job) == ""
    assert list((fleet.home / "simulated" / "machines").iterdir()) == []


def test_a_stop_gives_the_script_its_grace(fleet):
    job = on_fleet(fleet, SAVES_IN_THE_NOTICE)
    fleet.until_attempt(job, 1)
    fleet.cli("stop", "--wait", job)
    assert fleet.record(job)["outcome"] == "stopped"
    assert fleet.committed(job) == "all of it"


def test_a_killed_machine_is_noticed_and_nothing_of_it_goes_on(fleet):
    job = on_fleet(fleet, FAMILY, arguments=["4"])
    fleet.open_gate(2)
    fleet.until_committed(job, "2")
    script, family = fleet.script_pid(job), fleet.family()
    fleet.kill(machine_pid(fleet, job))
    fleet.until_attempt(job, 2)
    assert not any(map(is_alive, [script, *family]))
    assert "restored 2\n" in fleet.log(job, 2)
    fleet.open_gate(4)
    record = fleet.wait(job)
    assert (record["outcome"], record["failures"], record["interruptions"]) == ("succeeded", 0, 1)
    assert reason(record)["code"] == "machine_lost"
    assert "vanished" in reason(record)["evidence"]["seen"]


def test_preempted_while_nobody_drives_it_is_resumed_by_the_next_command(fleet):
    fleet.environ["TRAINMASTER_SIMULATED_NOTICE_S"] = "30"
    job = on_fleet(fleet, SAVES_IN_THE_NOTICE)
    fleet.until_attempt(job, 1)
    fleet.kill_drivers()
    machine = take_back(fleet, job)
    fleet.until("the machine switched itself off", lambda: not is_alive(machine))
    assert fleet.drivers() == []
    assert fleet.record(job)["attempts"][0].get("ending") is None, "nobody has noticed yet"
    record = fleet.wait(job)
    assert "restored all of it\n" in fleet.log(job, 2)
    assert (record["outcome"], reason(record)["code"]) == ("succeeded", "preempted")


def test_a_driver_killed_while_a_machine_lives_restarts_nothing(fleet):
    job = on_fleet(fleet, COUNT, arguments=["2"])
    fleet.open_gate(1)
    fleet.until_committed(job, "1")
    script = fleet.script_pid(job)
    fleet.kill_drivers()
    fleet.open_gate(2)
    record = fleet.wait(job)
    assert (record["outcome"], len(record["attempts"])) == ("succeeded", 1)
    assert f"pid {script} " in fleet.log(job)


def test_several_machines_for_one_job_are_refused_at_submission(fleet):
    job_file = fleet.job_file(COUNT, arguments=["1"], resources={"nodes": 2})
    said = fleet.cli("submit", job_file, "--provider", "simulated", expect=2).stderr.decode()
    assert "provider simulated does not support resources.nodes yet" in said
    assert fleet.ids() == []


def test_a_machine_has_one_cpu(fleet):
    done = fleet.cli("submit", fleet.job_file("print(1)", provider="simulated", resources={"cpus": 2}), expect=2)
    assert b"resources.cpus: 2 wanted, but each machine there has 1" in b" ".join(done.stderr.split())
    assert fleet.ids() == []
