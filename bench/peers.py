"""Which peers are measured beside us, and how do they get onto this machine? Each into an environment of its own.

Run by the system's Python (`make bench-peers`), so nothing outside the standard library is used here.
"""

import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".bench-venvs"

#: peer → what is installed. None of them needs torch, which would be gigabytes.
PEERS = {
    "torchx": ("torchx==0.7.*",),
    "submitit": ("submitit==1.5.*",),
    "ray": ("ray[default]==2.*",),
}
UNWANTED = "torch"


def program(peer, name="python"):
    """A program of a peer's environment, or None if the peer is not installed."""
    if not (FOLDER / peer / ".installed").exists():
        return None
    return FOLDER / peer / "bin" / name


def install(peers):
    """Make the environments that are missing; those that are there stay."""
    for peer in peers:
        if program(peer) is None:
            print(f"installing {peer} into {FOLDER / peer}", flush=True)
            _install_one(peer)
        print(f"{peer}: {version(peer)}", flush=True)


def version(peer):
    """The installed version, or None."""
    python = program(peer)
    if python is None:
        return None
    code = f"from importlib.metadata import version; print(version({peer!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def _install_one(peer):
    folder = FOLDER / peer
    venv.create(folder, with_pip=True, clear=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *PEERS[peer]], check=True)
    if subprocess.run([*pip, "show", UNWANTED], capture_output=True).returncode == 0:
        sys.exit(f"{peer} brought {UNWANTED} with it; this comparison is not meant to need it")
    (folder / ".installed").touch()


def main(arguments):
    known = ", ".join(PEERS)
    if not arguments or arguments[0] != "install" or set(arguments[1:]) - set(PEERS):
        sys.exit(f"usage: python3 bench/peers.py install [{known}]")
    install(arguments[1:] or PEERS)


if __name__ == "__main__":
    main(sys.argv[1:])
