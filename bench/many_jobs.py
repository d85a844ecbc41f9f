"""How long do twenty trivial jobs take on two slots, until all are done?"""

from bench import peers
from bench.ours import Home
from bench.ray_server import ray_server
from bench.scene import JOBS, OUR_PYTHON, TRAINMASTER, BenchFailed, Scene, best, interleaved, seconds, timed
from bench.table import Row

COUNT = 20
SLOTS = 2
ROUNDS = 3
WANTED_S = 4.0


def measure(scene: Scene) -> list[Row]:
    source = scene.source("trivial.py")
    ways = {
        "commands": lambda: _by_commands(scene, source),
        "library": lambda: _by_library(scene, source),
    }
    if (submitit := peers.program("submitit")) is not None:
        for name, slots in (("submitit, 2 threads", SLOTS), ("submitit, all at once", 0)):
            ways[name] = lambda slots=slots: (
                timed(
                    [submitit, JOBS / "peer_submitit.py", scene.new_folder("submitit"), COUNT, slots], scene.environ(), source
                ).wall_s
            )
    found = interleaved(scene.rounds(ROUNDS), ways)
    beside = [f"{name} {seconds(values)}" for name, values in found.items() if name.startswith("submitit")]
    beside += _ray(scene)
    beside += [f"{peer} not installed: make bench-peers" for peer in ("submitit", "ray") if peers.program(peer) is None]
    how = {
        "commands": (
            f"a shell loop of {COUNT} `trainmaster submit`, then one `trainmaster wait` for all; the wall time of the loop: "
            f"40 commands and a background driver on the same cores as the jobs. {ROUNDS} rounds, a fresh home each; ray "
            "is run once."
        ),
        "library": (
            f"one program that submits {COUNT} jobs through trainmaster.embedded and drives them, from its start to its "
            "end, as submitit's and ray's are. submitit has no slots: two threads that submit and wait, and all twenty "
            "at once."
        ),
    }
    titles = {"commands": "by 20 `submit`, then `wait`", "library": "by one program"}
    return [
        Row(
            what=f"{COUNT} trivial jobs on {SLOTS} slots, all done, {titles[way]}",
            ours=seconds(found[way]),
            beside="; ".join(beside),
            wanted=f"≤ {WANTED_S:g} s",
            reached=best(found[way]) <= WANTED_S,
            how=how[way],
        )
        for way in ("commands", "library")
    ]


def _by_commands(scene: Scene, source) -> float:
    """What somebody at a terminal would type. One shell, so that our own bookkeeping is not in the time."""
    home = Home(scene, source, cpus=str(SLOTS))
    loop = f'ids=""; for i in $(seq {COUNT}); do ids="$ids $("$0" submit trivial.py)" || exit 1; done; "$0" wait $ids'
    return timed(["/bin/sh", "-c", loop, TRAINMASTER], home.environ, source).wall_s


def _by_library(scene: Scene, source) -> float:
    home = Home(scene, source, cpus=str(SLOTS))
    return timed([OUR_PYTHON, JOBS / "our_library.py", source / "trivial.py", COUNT], home.environ, source).wall_s


def _ray(scene: Scene) -> list[str]:
    with ray_server(scene) as address:
        if address is None:
            return []
        script = scene.source("trivial.py") / "trivial.py"
        try:
            spent = timed([peers.program("ray"), JOBS / "peer_ray.py", address, script, COUNT], scene.environ(), scene.folder)
        except BenchFailed as error:
            return [f"ray failed: {str(error)[-120:]}"]
        return [f"ray {seconds([spent.wall_s])}"]
