"""What does a heartbeat add to what is known? It may be an old one that arrived late, over a newer one: nothing is taken back."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.core.inputs import InputSummary
from trainmaster.core.job import Timeline
from trainmaster.core.metrics import MetricSummary


def timeline(known: Timeline, told: Timeline) -> Timeline:
    """Moments that are known stay known."""
    if told == known:
        return known
    return Timeline(**{name: getattr(told, name) or getattr(known, name) for name in Timeline.__struct_fields__})


def metrics(known: Mapping[str, MetricSummary], told: Mapping[str, MetricSummary]) -> dict[str, MetricSummary]:
    """Of each metric what more points stand behind."""
    return {**told, **{name: found for name, found in known.items() if name not in told or told[name].count < found.count}}


def inputs(known: Mapping[str, InputSummary], told: Mapping[str, InputSummary]) -> dict[str, InputSummary]:
    """Of each channel the newest word; a warning stays."""
    return {
        **told,
        **{name: found for name, found in known.items() if name not in told or (found.warning and not told[name].warning)},
    }
