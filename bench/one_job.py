"""How long from submitting one trivial job to seeing its exit? Whole commands and programs, interpreter start included."""

from bench import peers
from bench.ours import Home
from bench.ray_server import ray_server
from bench.scene import JOBS, Scene, best, interleaved, seconds, timed
from bench.table import Row

ROUNDS = 7


def measure(scene: Scene) -> list[Row]:
    source = scene.source("trivial.py")
    home = Home(scene, source)
    with ray_server(scene) as address:
        ways = {"trainmaster run": lambda: home.command("run", "trivial.py").wall_s}
        for name, command in _peer_commands(scene, address).items():
            ways[name] = lambda command=command: timed(command, scene.environ(), source).wall_s
        interleaved(1, ways)
        found = interleaved(scene.rounds(ROUNDS), ways)
    ours = best(found["trainmaster run"])
    torchx = min((best(values) for name, values in found.items() if name.startswith("torchx")), default=None)
    ratio = f" = {ours / torchx:.2f} × torchx's best" if torchx else ""
    return [
        Row(
            what="submit → exit seen, one trivial job, wall",
            ours=seconds(found["trainmaster run"]) + ratio,
            beside="; ".join(_beside(found)),
            wanted="≤ 1.0 × torchx's best",
            reached=ours <= torchx if torchx else None,
            how=(
                f"a script that prints one line; the wall time of the whole command, {ROUNDS} interleaved rounds after "
                "one to warm up. Ours is `trainmaster run`, which packs a snapshot, claims, keeps the log and the "
                "record. torchx's command waits in steps of a second, so its library with a wait of 20 ms is there too, "
                "as a program of its own; so are submitit's and ray's libraries. The ray server runs already. All jobs "
                "have the same interpreter; submitit's runs its own."
            ),
        )
    ]


def _peer_commands(scene: Scene, address: str | None) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    if (torchx := peers.program("torchx")) is not None:
        command = torchx.with_name("torchx")
        found["torchx run utils.python"] = [command, "run", "-s", "local_cwd", "utils.python", "--script", "trivial.py"]
        found["torchx run utils.sh"] = [command, "run", "-s", "local_cwd", "utils.sh", "python", "trivial.py"]
        found["torchx library"] = [torchx, JOBS / "peer_torchx.py", "trivial.py"]
    if (submitit := peers.program("submitit")) is not None:
        found["submitit"] = [submitit, JOBS / "peer_submitit.py", scene.new_folder("submitit"), 1, 1]
    if address is not None:
        ray = peers.program("ray")
        script = scene.source("trivial.py") / "trivial.py"
        found["ray job submit"] = [ray.with_name("ray"), "job", "submit", "--address", address, "--", "python", script]
        found["ray library"] = [ray, JOBS / "peer_ray.py", address, script, 1]
    return found


def _beside(found: dict[str, list[float]]) -> list[str]:
    lines = [f"{name} {seconds(values)}" for name, values in found.items() if name != "trainmaster run"]
    missing = [peer for peer in peers.PEERS if peers.program(peer) is None]
    return lines + [f"{peer} not installed: make bench-peers" for peer in missing]
