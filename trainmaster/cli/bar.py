"""How does work on the machine stand below what its job prints? One bar at a time, out of the way whenever a line comes."""

from __future__ import annotations

from trainmaster.cli import render
from trainmaster.core.facts import Heartbeat

#: which moment of a runner's timeline says that the work is done
_DONE = {"fetching": "fetched_at", "restoring": "restored_at", "committing": "uploaded_at", "uploading": "uploaded_at"}


class Bar:
    """The bar of the work that a runner speaks of, drawn by `look`; whoever prints something else says `hide` first."""

    def __init__(self) -> None:
        self._shown: tuple[str, int, int] | None = None
        self._is_hidden = True
        #: complete already; a runner goes on speaking of it until something else happens
        self._complete: tuple[str, int] | None = None
        self._attempt = 0

    def look(self, attempt: int, beat: Heartbeat | None) -> None:
        """Draw what the runner of an attempt last said, if it is news."""
        if attempt != self._attempt:
            self.end(is_done=False)
            self._attempt, self._complete = attempt, None
        progress = None if beat is None else beat.progress
        if self._shown is not None and (progress is None or progress[0] != self._shown[0]):
            at = _DONE[self._shown[0]]
            is_next = progress is not None  # the next work begins when this is done
            self.end(is_done=is_next or (beat is not None and getattr(beat.timeline, at) is not None))
        if progress is None or progress[::2] == self._complete or (progress == self._shown and not self._is_hidden):
            return
        what, done, total = progress
        self._shown, self._is_hidden = progress, False
        render.progress(what, done, total)
        if done >= total:
            self._shown, self._complete = None, (what, total)

    def hide(self) -> None:
        """Make room for a line."""
        if self._shown is not None and not self._is_hidden:
            render.hide_progress(self._shown[2])
        self._is_hidden = True

    def end(self, *, is_done: bool) -> None:
        """The work is over: the bar stays, full, or goes."""
        if self._shown is not None and is_done:
            what, _, total = self._shown
            render.progress(what, total, total)
        else:
            self.hide()
        self._shown, self._is_hidden = None, True
