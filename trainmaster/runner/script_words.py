"""What has the script said about its checkpoints: which step they are of, and when they were complete?"""

from __future__ import annotations

import os
from pathlib import Path

from trainmaster.runner.checkpoint_folder import step_in_name
from trainmaster.runner.metric_reader import MetricReader


class ScriptWords:
    """The script's words about one checkpoint folder. Asked by one thread."""

    def __init__(self, metrics: MetricReader, folder: Path) -> None:
        self._metrics = metrics
        self._folder = folder
        self._complete_s: float | None = None

    def complete_at_s(self) -> float | None:
        """When the script last said that what lies in the folder is complete, in seconds since 1970; None: never."""
        self._metrics.read_file()
        folder = os.path.realpath(self._folder)
        while self._metrics.told:
            path, at_s = self._metrics.told.popleft()
            if f"{path}/".startswith(f"{folder}/"):
                self._complete_s = at_s
        return self._complete_s

    def step_of(self, changed: list[str]) -> int | None:
        """The step of what changed: as the script told, as the file is named, or the newest it had reported when it wrote it."""
        self._metrics.read_file()
        for path in reversed(changed):
            told = self._told_step(path)
            step = told if told is not None else step_in_name(path)
            if step is not None:
                return step
        try:
            written_s = max((self._folder / path).stat().st_mtime for path in changed)
        except (OSError, ValueError):
            return None
        return self._metrics.step_at(written_s)

    def _told_step(self, path: str) -> int | None:
        """Told of the file, or of a folder it lies in."""
        for place in (path, *map(str, Path(path).parents)):
            step = self._metrics.told_steps.get(os.path.realpath(self._folder / place))
            if step is not None:
                return step
        return None
