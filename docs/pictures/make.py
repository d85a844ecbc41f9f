"""Makes demo.svg: the demonstration as it looks on a terminal. Needs tmux: `.venv/bin/python docs/pictures/make.py`."""

import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 104, 100


def main() -> None:
    tmux = ["tmux", "-L", "trainmaster-picture"]
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), f"cd {ROOT}; make -s demo; exec sleep 600"], check=True
    )
    try:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            screen = subprocess.run([*tmux, "capture-pane", "-e", "-p", "-J"], check=True, capture_output=True, text=True).stdout
            if "Look around" in screen:
                break
            time.sleep(0.5)
        else:
            sys.exit("the demonstration did not finish")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    lines = screen.replace(str(ROOT), "~/trainmaster").split("\n")
    start = next(i for i, line in enumerate(lines) if "2. Train" in line)
    end = next(i for i, line in enumerate(lines) if "4. What was kept" in line)
    console = Console(record=True, width=COLUMNS, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(Text.from_ansi("\n".join(lines[start:end]).rstrip()))
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="make demo"), flags=re.DOTALL)  # no fonts from elsewhere
    (ROOT / "docs" / "pictures" / "demo.svg").write_text(picture)


if __name__ == "__main__":
    main()
