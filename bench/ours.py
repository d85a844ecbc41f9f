"""How is Trainmaster used in a measurement? As its users do: by its commands, with a home folder of its own."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from bench.scene import TRAINMASTER, BenchFailed, Scene, Spent, timed


class Home:
    """One home folder and the commands that work on it."""

    def __init__(self, scene: Scene, source: Path, **settings: str) -> None:
        self.folder = scene.new_folder("home")
        self.environ = scene.environ(
            TRAINMASTER_HOME=str(self.folder), **{f"TRAINMASTER_{name.upper()}": value for name, value in settings.items()}
        )
        self._source = source

    def command(self, *words: object) -> Spent:
        """One command, from its start to its end."""
        return timed([TRAINMASTER, *words], self.environ, self._source)

    def submit(self, *words: object) -> str:
        """The id of a new job."""
        return json.loads(_json_part(self.command("submit", "--json", *words).output))["id"]

    def wait(self, job_id: str) -> dict[str, object]:
        """The record of a job that has succeeded."""
        return json.loads(_json_part(self.command("wait", "--json", job_id).output))

    def job_file(self, name: str, **fields: object) -> Path:
        """A job file in the source folder. JSON, so that nothing here depends on a YAML library."""
        path = self._source / f"{name}.json"
        path.write_text(json.dumps({"name": name, **fields}))
        return path

    def stored(self, job_id: str, pattern: str) -> list[Path]:
        """Objects of a job in the folder store."""
        return sorted((self.folder / "store" / "jobs" / job_id).glob(pattern))

    def runner_pids(self) -> Iterator[int]:
        """Runners that were started and whose folder is still there."""
        for path in self.folder.glob("machines/*/process.json"):
            try:
                yield json.loads(path.read_text())["pid"]
            except (OSError, ValueError):
                continue  # just being released


def until(condition, what: str, seconds_max: float = 120.0, pause_s: float = 0.002):
    """The first true answer; BenchFailed when none comes."""
    give_up = time.monotonic() + seconds_max
    while not (answer := condition()):
        if time.monotonic() > give_up:
            raise BenchFailed(f"waited {seconds_max:g} s for {what}")
        time.sleep(pause_s)
    return answer


def _json_part(text: str) -> str:
    """Notes for people come first, on stderr; the JSON document is the rest."""
    return text[text.index("{") : text.rindex("}") + 1]
