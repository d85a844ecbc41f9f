"""What happened to a job, and why? One line per decision, with its cause, its rule and its evidence."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class StoryLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to one job."""

    at: datetime
    #: what happened, as a code: submitted, placed, started, interrupted, resumed, …
    event: str
    #: the same for people
    sentence: str
    #: which rule decided it
    rule: str
    attempt: int = 0
    evidence: dict[str, str] = {}
