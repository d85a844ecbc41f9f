"""What did a job measure, in a few numbers? The last, lowest and highest value of each metric, small enough for every record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

#: Of so many metrics of an attempt the numbers are kept; a script that measures more has them all in its chunks.
METRICS_MAX = 200
#: A longer name has its points in the chunks, and no place in the record.
METRIC_NAME_MAX = 200
#: What a point says beside its values.
BESIDE_METRICS = frozenset({"t", "step", "attempt"})


class MetricSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric of one attempt, or of a whole job."""

    count: int
    #: None: the last value was infinite, or not a number
    last: float | None = None
    last_step: int | None = None
    #: of the finite values; None: there was none
    min: float | None = None
    min_step: int | None = None
    max: float | None = None
    max_step: int | None = None


def combined(summaries: Iterable[Mapping[str, MetricSummary]]) -> Mapping[str, MetricSummary]:
    """The attempts of a job as one, the oldest first: the last value is the newest attempt's, the extremes are of all."""
    found: dict[str, MetricSummary] = {}
    for summary in summaries:
        for name, later in summary.items():
            earlier = found.get(name)
            found[name] = later if earlier is None else _joined(earlier, later)
    return found


def _joined(earlier: MetricSummary, later: MetricSummary) -> MetricSummary:
    low, high = later, later
    if earlier.min is not None and (later.min is None or earlier.min < later.min):
        low = earlier
    if earlier.max is not None and (later.max is None or earlier.max > later.max):
        high = earlier
    return MetricSummary(
        count=earlier.count + later.count,
        last=later.last,
        last_step=later.last_step,
        min=low.min,
        min_step=low.min_step,
        max=high.max,
        max_step=high.max_step,
    )
