"""Does the control plane keep its promises in a world that misbehaves? decide, place and request_stop against a tiny model of one.

The model has machines (asked for, up, gone, burnt or cut off), one runner on each, a bucket with claims, orders, exit records and
commit markers, and a control plane that may crash between commit and perform. Anything may stop answering at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from trainmaster.core import checkpoints, invariants, ledger
from trainmaster.core.decide import Decision, decide, place, request_stop
from trainmaster.core.facts import ClaimState, ExitReport, Facts, Heartbeat, LaunchRefusal, Seen, Sighting, StopSeen
from trainmaster.core.instructions import CloseAttempt, Instruction, Launch, OpenAttempt, OrderStop, Release, Seal
from trainmaster.core.job import CheckpointRef, JobRecord, Outcome, Phase, Timeline
from trainmaster.spec.job_spec import Limits, Retry
from trainmaster.testing.builders import TIMING, a_commit, a_job, a_placement, a_refusal, a_spec, a_stop, at

LEASE_S = TIMING.attempt_lease_s


@dataclass
class Try:
    """Everything the world knows of one attempt."""

    number: int
    machine: str = "none"  # none, asked, up, ended, burnt
    resumes: CheckpointRef | None = None
    was_opened: bool = False
    claim: ClaimState = ClaimState.FREE
    order: str = ""
    #: the runner trains; it dies with its machine, or with its lease where nobody can confirm that it is gone
    alive: bool = False
    #: neither provider nor bucket are reached from there
    cut_off: bool = False
    claimed_at: float | None = None
    beat_at: float | None = None
    exit: ExitReport | None = None
    seq: int = 0


class World(RuleBasedStateMachine):
    """One job and everything around it."""

    @initialize(
        failures=st.integers(0, 2),
        interruptions=st.integers(0, 2),
        run=st.none() | st.just(200.0),
        confirms_gone=st.booleans(),
        steps=st.sampled_from([0, 1, 2, 3, 4, 4, 4]),
    )
    def begin(self, failures, interruptions, run, confirms_gone, steps):
        spec = a_spec(retry=Retry(failures=failures, interruptions=interruptions), limits=Limits(run=run, grace=10))
        self.job: JobRecord = a_job(spec=spec)
        self.confirms_gone = confirms_gone
        self.clock = 0.0
        self.skew = 0.0
        self.provider_answers = self.store_answers = True
        self.refusal: LaunchRefusal | None = None
        self.tries: list[Try] = []
        self.commits: list[CheckpointRef] = []
        self.sealed: JobRecord | None = None
        self.story: list[str] = []
        # Most trouble comes to those that train: begin some of the way there.
        for step in (lambda: self.schedule(None), self.a_machine_comes, self.a_runner_claims, lambda: self.look(None))[:steps]:
            step()

    # What the control plane does.

    @rule(crash=st.none() | st.integers(0, 2))
    def look(self, crash):
        self._take(decide(self.job, self._observe(), at(self.clock - self.skew), TIMING), crash)

    @rule()
    def look_twice(self):
        self.look(None)
        self.look(None)

    @precondition(lambda self: self.job.phase is Phase.QUEUED)
    @rule(crash=st.none() | st.just(0))
    def schedule(self, crash):
        if self.job.not_before is None or at(self.clock) >= self.job.not_before:
            self._take(place(self.job, a_placement(), at(self.clock - self.skew)), crash)

    @precondition(lambda self: self.job.stop is None)
    @rule(rarely=st.integers(0, 2))
    def ask_to_stop(self, rarely):
        if rarely == 0:
            self._take(request_stop(self.job, a_stop(seconds=self.clock - self.skew)), None)

    # What the world does.

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 40.0, 100.0, 700.0]))
    def time_passes(self, seconds):
        self.clock += seconds
        for attempt in self.tries:
            if attempt.alive and not attempt.cut_off:
                attempt.beat_at = self.clock
            elif attempt.alive and not self.confirms_gone and self.clock >= (attempt.beat_at or 0) + LEASE_S:
                attempt.alive = False  # the runner ends its process before its lease does

    @rule(skew=st.sampled_from([0.0, 0.0, 5000.0]))
    def the_clock_jumps(self, skew):
        self.skew = skew

    @rule(answers=st.booleans())
    def the_provider(self, answers):
        self.provider_answers = answers

    @rule(answers=st.booleans())
    def the_store(self, answers):
        self.store_answers = answers

    @rule(is_final=st.sampled_from([False, False, True]))
    def the_next_launch_is_refused(self, is_final):
        self.refusal = a_refusal(is_final=is_final)

    @precondition(lambda self: any(t.machine == "asked" for t in self.tries))
    @rule()
    def a_machine_comes(self):
        next(t for t in self.tries if t.machine == "asked").machine = "up"

    @precondition(lambda self: any(t.machine == "up" for t in self.tries))
    @rule(how=st.sampled_from(["ended", "burnt"]))
    def a_machine_goes(self, how):
        attempt = next(t for t in self.tries if t.machine == "up")
        attempt.machine, attempt.alive = how, False

    @precondition(lambda self: self._free_runner() is not None)
    @rule()
    def a_runner_claims(self):
        attempt = self._free_runner()
        assert attempt.was_opened, "nobody wrote down what it resumes from"
        if attempt.claim is ClaimState.FREE:
            attempt.claim, attempt.alive = ClaimState.TAKEN, True
            attempt.claimed_at = attempt.beat_at = self.clock
        else:
            attempt.machine = "ended"  # closed, or somebody else's: a runner that cannot claim exits

    @precondition(lambda self: self._alive() is not None)
    @rule(cut_off=st.booleans())
    def a_runner_is_cut_off(self, cut_off):
        self._alive().cut_off = cut_off

    @precondition(lambda self: self._reachable() is not None)
    @rule(told=st.booleans())
    def a_runner_commits(self, told):
        attempt = self._reachable()
        attempt.seq += 1
        self.commits.append(a_commit(attempt.number, attempt.seq, seconds=self.clock))
        if told:
            attempt.beat_at = self.clock

    @precondition(lambda self: self._reachable() is not None)
    @rule(code=st.sampled_from([0, 1, None]), leaves=st.booleans())
    def a_script_ends(self, code, leaves):
        self._exits(self._reachable(), code, None, leaves)

    @precondition(lambda self: self._reachable() is not None and self._reachable().order)
    @rule(leaves=st.booleans())
    def a_runner_obeys(self, leaves):
        attempt = self._reachable()
        if attempt.order == "stop":
            self._exits(attempt, 0, StopSeen.ORDER, leaves)
        else:
            attempt.alive, attempt.machine = False, "ended"  # closed: no exit record

    # What must hold after each step.

    @invariant()
    def the_record_keeps_its_promises(self):
        assert invariants.broken(self.job) == []

    @invariant()
    def at_most_one_runner_trains(self):
        assert sum(t.alive for t in self.tries) <= 1
        if self.job.phase in {Phase.QUEUED, Phase.FINISHED}:
            assert not any(t.alive for t in self.tries), "it was declared over while it trained"

    @invariant()
    def no_claim_is_free_once_its_attempt_is_over(self):
        for attempt, known in zip(self.tries, self.job.attempts, strict=False):
            assert known.ended_at is None or attempt.claim is not ClaimState.FREE

    @invariant()
    def every_attempt_resumes_from_what_was_accepted_and_nothing_committed_is_lost(self):
        for attempt, known in zip(self.tries, self.job.attempts, strict=False):
            if attempt.was_opened:
                assert attempt.resumes == known.resumes
            if known.ended_at is not None:
                assert known.head == checkpoints.newest(self.commits, known.number)

    @invariant()
    def the_outcome_is_what_the_script_did(self):
        if self.job.outcome is Outcome.SUCCEEDED:
            assert self.tries[-1].exit.code == 0
        if self.job.outcome is Outcome.STOPPED:
            assert self.job.stop is not None
        if self.job.outcome is Outcome.FAILED:
            assert self.job.stop is None

    @invariant()
    def the_book_adds_up(self):
        now = max(at(self.clock), self.job.updated_at)
        booked = sum((s.end - s.start for s in ledger.spans(self.job, now)), timedelta(0))
        assert booked == (self.job.finished_at or now) - self.job.submitted_at

    def teardown(self):
        """The faults stop, and everybody does what they should: the job must finish, and late machines train nothing."""
        if not hasattr(self, "job"):
            return
        self.provider_answers = self.store_answers = True
        self.refusal, self.skew = None, 0.0
        self.clock = max(self.clock, (self.job.updated_at - at(0)).total_seconds())
        for _ in range(40):
            if self.job.phase is Phase.FINISHED:
                break
            self._kind_step()
            for check in (
                self.the_record_keeps_its_promises,
                self.at_most_one_runner_trains,
                self.the_outcome_is_what_the_script_did,
            ):
                check()
        assert self.job.phase is Phase.FINISHED, self.story
        self._take(decide(self.job, self._observe(), at(self.clock), TIMING), None)
        assert self.sealed == self.job
        for attempt in self.tries:  # launches that were still under way come true; the sweeper would find them soon
            attempt.machine = "up" if attempt.machine == "asked" else attempt.machine
        while self._free_runner() is not None:
            self.a_runner_claims()
        self.at_most_one_runner_trains()

    def _kind_step(self):
        self.look(crash=None)
        if not self.confirms_gone:  # whoever is silent is looked at again before long
            self.time_passes(TIMING.lease_margin_s + 1)
            self.look(crash=None)
        if self.job.phase is Phase.QUEUED:
            self.clock = max(self.clock, ((self.job.not_before or at(0)) - at(0)).total_seconds())
            self.schedule(crash=None)
        for attempt in self.tries:
            attempt.cut_off = False
            attempt.machine = "up" if attempt.machine == "asked" else attempt.machine
        if self._free_runner() is not None:
            self.a_runner_claims()
        elif self._reachable() is not None and self._reachable().order:
            self.a_runner_obeys(leaves=True)
        elif self._reachable() is not None and self.job.phase is Phase.RUNNING:
            self._exits(self._reachable(), 0, None, True)
        self.time_passes(1000.0 if not self.confirms_gone else 3.0)

    # Helpers.

    def _free_runner(self) -> Try | None:
        """A machine that is up and whose runner has neither claimed nor ended."""
        return next((t for t in self.tries if t.machine == "up" and not t.alive and t.exit is None), None)

    def _alive(self) -> Try | None:
        return next((t for t in self.tries if t.alive), None)

    def _reachable(self) -> Try | None:
        return next((t for t in self.tries if t.alive and not t.cut_off), None)

    def _exits(self, attempt: Try, code: int | None, stop_seen: StopSeen | None, leaves: bool) -> None:
        attempt.alive = False
        attempt.exit = ExitReport(
            timeline=replace(self._timeline(attempt), exited_at=at(self.clock), uploaded_at=at(self.clock)),
            code=code,
            signal="SIGKILL" if code is None else None,
            stop_seen=stop_seen,
            commit=checkpoints.newest(self.commits, attempt.number),
        )
        if leaves:
            attempt.machine = "ended"

    def _timeline(self, attempt: Try) -> Timeline:
        began = None if attempt.claimed_at is None else at(attempt.claimed_at)
        return Timeline(claimed_at=began, set_up_at=began, restored_at=began)

    def _observe(self) -> Facts:
        if self.job.phase in {Phase.QUEUED, Phase.FINISHED}:
            return Facts(allocation=Sighting(seen=Seen.GONE))
        attempt = self._try(self.job.attempt)
        sighting = self._sighting(attempt)
        if not self.store_answers:
            return Facts(allocation=sighting, store_answers=False, confirms_gone=self.confirms_gone)
        beat = None
        if attempt.beat_at is not None:
            moment = at(attempt.beat_at)
            timeline = self._timeline(attempt)
            beat = Heartbeat(at=moment, lease_until=moment + timedelta(seconds=LEASE_S), state="training", timeline=timeline)
        return Facts(
            allocation=sighting,
            claim=attempt.claim,
            is_closed=attempt.order == "close",
            heartbeat=beat,
            exit=attempt.exit,
            commit=checkpoints.newest(self.commits, attempt.number),
            confirms_gone=self.confirms_gone,
        )

    def _sighting(self, attempt: Try) -> Sighting:
        unseen = attempt.cut_off or (attempt.machine == "burnt" and not self.confirms_gone)
        if not self.provider_answers or unseen:
            return Sighting(seen=Seen.UNKNOWN)
        seen = Seen.PRESENT if attempt.machine == "up" else Seen.GONE
        return Sighting(seen=seen, was_launched=attempt.machine in {"up", "ended", "burnt"})

    def _try(self, number: int) -> Try:
        while len(self.tries) < number:
            self.tries.append(Try(number=len(self.tries) + 1))
        return self.tries[number - 1]

    def _take(self, decision: Decision, crash: int | None) -> None:
        """Commit, then perform; a crash leaves out the instructions from there on."""
        before, self.job = self.job, invariants.check(decision.job)
        assert before.phase is not Phase.FINISHED or decision.job == before
        assert before.phase is decision.job.phase or decision.lines, "a transition without a line"
        assert decision.wake_at is not None or decision.job.is_finished or decision.job == before
        self.story += [f"{line.event}: {line.sentence}" for line in decision.lines]
        for instruction in decision.instructions[:crash]:
            refused = self._perform(instruction)
            if refused is not None:
                facts = replace(self._observe(), refusal=refused)
                self._take(decide(self.job, facts, at(self.clock - self.skew), TIMING), crash)
                return

    def _perform(self, instruction: Instruction) -> LaunchRefusal | None:
        if isinstance(instruction, Release):
            return self._release() if self.provider_answers else None
        if isinstance(instruction, Launch):
            return self._launch(self._try(instruction.attempt)) if self.provider_answers else None
        if not self.store_answers:
            return None
        match instruction:
            case OpenAttempt():
                attempt = self._try(instruction.attempt)
                attempt.was_opened, attempt.resumes = True, instruction.resumes
            case OrderStop():
                self._try(instruction.attempt).order = "stop"
            case CloseAttempt():
                attempt = self._try(instruction.attempt)
                attempt.claim = ClaimState.CLOSED if attempt.claim is ClaimState.FREE else attempt.claim
                attempt.order = "close"
            case Seal():
                self.sealed = self.job
        return None

    def _launch(self, attempt: Try) -> LaunchRefusal | None:
        if not attempt.was_opened:
            return None  # the shell stops at the first thing it cannot do
        if self.refusal is not None:
            refused, self.refusal = self.refusal, None
            return refused
        if attempt.machine == "none":
            attempt.machine = "asked"
        return None

    def _release(self) -> None:
        attempt = self._try(self.job.attempt)
        if attempt.machine in {"up", "ended"} and not attempt.cut_off:  # one that is only asked for still comes: a late launch
            attempt.machine, attempt.alive = "ended", False


TestWorld = World.TestCase
TestWorld.settings = settings(settings.default, max_examples=settings.default.max_examples * 5)
