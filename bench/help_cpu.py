"""What does `--help` cost? CPU seconds of the whole process, as the kernel counts them."""

from bench import peers
from bench.scene import TRAINMASTER, Scene, best, interleaved, seconds, timed
from bench.table import Row

WANTED_S = 0.12


def measure(scene: Scene) -> list[Row]:
    environ = scene.environ(TRAINMASTER_HOME=str(scene.new_folder("home")))
    ways = {"trainmaster": [TRAINMASTER, "--help"]}
    if (torchx := peers.program("torchx", "torchx")) is not None:
        ways["torchx"] = [torchx, "--help"]
    # An interpreter that starts and ends: nobody written in Python can be faster.
    ways["python -c pass"] = [scene.python, "-c", "pass"]
    runs = {name: (lambda command=command: timed(command, environ, scene.folder).cpu_s) for name, command in ways.items()}
    interleaved(1, runs)
    found = interleaved(scene.rounds(15), runs)
    beside = [f"{name} {seconds(values)}" for name, values in found.items() if name != "trainmaster"]
    if "torchx" not in found:
        beside.insert(0, "torchx not installed: make bench-peers")
    return [
        Row(
            what="`--help`, CPU seconds",
            ours=seconds(found["trainmaster"]),
            beside="; ".join(beside),
            wanted=f"≤ {WANTED_S} s",
            reached=best(found["trainmaster"]) <= WANTED_S,
            how="user + system time of the process (wait4), 15 interleaved rounds after one to warm the caches.",
        )
    ]
