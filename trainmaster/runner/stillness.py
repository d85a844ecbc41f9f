"""Which part of a folder lies still, and since when? Our own looks tell; the clocks of files do not matter."""

from __future__ import annotations

from trainmaster.runner.checkpoint_folder import Fingerprint


class Stillness:
    """Remembers when each path of a folder was last seen to be different."""

    def __init__(self, print_: Fingerprint) -> None:
        self._print = print_
        self._changed_s: dict[str, float] = {}

    def saw(self, print_: Fingerprint, now_s: float) -> None:
        """One more look at the folder."""
        if print_ == self._print:
            return
        places = {(entry.inode, entry.size, entry.mtime_ns) for entry in print_.values()}
        for path, before in self._print.items():
            has_moved = (before.inode, before.size, before.mtime_ns) in places
            if path not in print_ and not has_moved:
                self._changed_s[path] = now_s
            elif path not in print_:
                self._changed_s.pop(path, None)  # renamed into place: the place is what changed
        for path, entry in print_.items():
            if self._print.get(path) != entry:
                self._changed_s[path] = now_s
        self._print = print_

    def restless(self, now_s: float, settle_s: float) -> list[str]:
        """Paths that have not lain still for so long, or vanished; the newest change last."""
        for path in [path for path, changed_s in self._changed_s.items() if now_s - changed_s >= settle_s]:
            del self._changed_s[path]
        return sorted(self._changed_s, key=lambda path: self._changed_s[path])
