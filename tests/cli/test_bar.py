"""The bar of work on the machine: below what the job prints, out of the way when a line comes, full only when it is done."""

from __future__ import annotations

import contextlib
import io
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from trainmaster.adapters.object_store import open_store
from trainmaster.cli.bar import Bar
from trainmaster.cli.following import Follower, LogCursor
from trainmaster.core.facts import Heartbeat
from trainmaster.core.job import JobId, Timeline
from trainmaster.spec import layout

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOTAL = 100 << 20


class Tty(io.TextIOWrapper):
    """A terminal that remembers every byte."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def rows(self) -> list[str]:
        """What stands in each row in the end, blanks left out."""
        text = self.buffer.getvalue().decode()
        return [row.split("\r")[-1].strip() for row in text.split("\n")]


@contextlib.contextmanager
def terminal():
    """Standard error is a terminal."""
    with contextlib.redirect_stderr(Tty()) as made:
        yield made


def _beat(what: str = "", share: float = 0, **timeline: datetime) -> Heartbeat:
    progress = (what, int(share * TOTAL), TOTAL) if what else None
    return Heartbeat(at=NOW, lease_until=NOW, state="", timeline=Timeline(**timeline), progress=progress)


@pytest.mark.parametrize(
    ("beats", "rows"),
    [
        ([_beat("restoring", 0.5)], ["50%"]),
        ([_beat("restoring", 0.5), _beat("restoring", 1)], ["100%", ""]),
        ([_beat("restoring", 1), _beat("restoring", 1), _beat(restored_at=NOW)], ["100%", ""]),
        ([_beat("restoring", 0.5), _beat(restored_at=NOW)], ["100%", ""]),
        ([_beat("restoring", 0.5), _beat()], [""]),
        ([_beat("restoring", 0.5), None], [""]),
        ([_beat("committing", 0.5), _beat("uploading", 0.2)], ["100%", "20%"]),
    ],
)
def test_what_stands_there_in_the_end(beats, rows):
    bar = Bar()
    with terminal() as tty:
        for beat in beats:
            bar.look(1, beat)
    assert len(tty.rows) == len(rows), tty.rows
    assert all(row in found for row, found in zip(rows, tty.rows, strict=True)), tty.rows


def test_the_next_attempt_has_a_bar_of_its_own():
    bar = Bar()
    with terminal() as tty:
        bar.look(1, _beat("restoring", 1))
        bar.look(1, _beat("uploading", 0.5))
        bar.look(2, _beat("restoring", 1))
    assert ["restoring" in row for row in tty.rows] == [True, True, False]
    assert "uploading" not in "".join(tty.rows)


def test_a_line_of_the_job_takes_the_place_of_the_bar_which_comes_back_below(tmp_path):
    embedded = SimpleNamespace(store=open_store(str(tmp_path / "store")))
    embedded.store.put(layout.chunk(layout.log_prefix("job", 1), 0), b"last words\n")
    with terminal() as tty:
        follower = Follower(embedded, JobId("job"), tty)
        follower._cursor = LogCursor(embedded, JobId("job"), 1, 0)
        follower._bar.look(1, _beat("committing", 0.5))
        follower._drain()
        assert tty.rows == ["last words", ""]
        follower._bar.look(1, _beat("committing", 0.5))
        assert tty.rows[0] == "last words"
        assert tty.rows[1].startswith("committing ━")
        follower.leave()
        assert tty.rows == ["last words", ""]
