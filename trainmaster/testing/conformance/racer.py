"""Does exactly one *process* win a race for a key? This is one of the racers: `python -m …racer`, spoken to by pipe."""

from __future__ import annotations

import json
import sys

from trainmaster.adapters.object_store import open_store
from trainmaster.spec.layout import Key


def main() -> None:
    """Read where to race, say that we are at the line, wait for the shot, run, say whether we won."""
    race = json.loads(sys.stdin.readline())
    store = open_store(race["url"], options=race["options"])
    store.get(Key(race["key"]))
    _say("ready")
    sys.stdin.readline()
    _say("won" if store.put_if_absent(Key(race["key"]), race["value"].encode()) else "lost")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
