"""Which environment does the record of an attempt name?"""

from __future__ import annotations

from msgspec.structs import replace

from trainmaster.core.decide import decide
from trainmaster.core.job import EnvironmentRef, Phase
from trainmaster.testing.builders import TIMING, a_heartbeat, a_job, an_exit, at, some_facts

ONE = EnvironmentRef(key="one", python="cpython 3.11.7")
TWO = EnvironmentRef(key="two", python="cpython 3.11.7")


def named(job, **facts):
    return decide(job, some_facts(**facts), at(100), TIMING).job.current.environment


def test_what_the_runner_said_last():
    job = a_job(Phase.RUNNING)
    assert named(job) is None
    assert named(job, heartbeat=replace(a_heartbeat(), environment=ONE)) == ONE
    both = {"heartbeat": replace(a_heartbeat(), environment=ONE), "exit": replace(an_exit(), environment=TWO)}
    assert named(job, **both) == TWO


def test_what_is_known_stays_known():
    job = decide(a_job(Phase.RUNNING), some_facts(heartbeat=replace(a_heartbeat(), environment=ONE)), at(1), TIMING).job
    assert named(job, heartbeat=a_heartbeat()) == ONE
