"""How fast do data come from a bucket, the first time and the second? Beside a bare loop with the same library, in the same run."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import obstore
from obstore.store import S3Store

from bench.ours import Home
from bench.scene import BenchFailed, Scene, best, interleaved, seconds, tell
from bench.table import Row
from trainmaster.testing.s3_server import S3Server, s3_server

FILES, BYTES = 10_000, 2_000_000_000
WORKERS = 16


def measure(scene: Scene) -> list[Row]:
    """Two rows: throughput of the first fetch, and what data that are here already add to a job's start."""
    files = 200 if scene.quick else FILES
    size = BYTES // FILES
    with s3_server(scene.new_folder("s3")) as server:
        client = _client(server)
        tell(f"  writing {files} objects of {size} bytes")
        _write(client, files, size)
        scene.rest()
        found = interleaved(
            scene.rounds(3),
            {
                "bare obstore loop": lambda: _bare(scene, client),
                "first job": lambda: _first(scene, server, files),
            },
        )
        home = _home(scene, server)
        _fetching_s(home, files)
        again = [_fetching_s(home, files) for _ in range(scene.rounds(5))]
    total = files * size
    ours, bare = (total / best(found[name]) / 1e6 for name in ("first job", "bare obstore loop"))
    what = f"{files:,} files / {total / 1e9:.1f} GB from an S3 server"
    return [
        Row(
            what=f"{what}, first time",
            ours=f"{ours:.0f} MB/s: {seconds(found['first job'])}",
            beside=f"bare obstore loop {bare:.0f} MB/s: {seconds(found['bare obstore loop'])}",
            wanted="≥ 0.8 × the bare loop",
            reached=None if scene.quick else ours >= 0.8 * bare,
            how=f"what a job's ledger calls fetching (list, download by {WORKERS} threads, link, manifest) with an empty cache; "
            f"the bare loop lists and downloads into files with obstore in {WORKERS} threads. The server is SeaweedFS on the same "
            "machine, and takes most of its processors.",
        ),
        Row(
            what=f"{what}, second job",
            ours=f"{seconds(again)} added",
            beside="",
            wanted="≤ 0.5 s",
            reached=None if scene.quick else best(again) <= 0.5,
            how="what a job's ledger calls fetching when everything is in the cache: the listing is asked for all the same.",
        ),
    ]


def _client(server: S3Server) -> S3Store:
    config = {**server.options, "virtual_hosted_style_request": "false"}
    return S3Store(server.bucket, config=config, client_options={"allow_http": True})


def _write(client: S3Store, files: int, size: int) -> None:
    def put(number: int) -> None:
        obstore.put(client, f"data/{number % 100:02d}/{number:05d}.bin", os.urandom(size), use_multipart=False)

    with ThreadPoolExecutor(8) as several:
        list(several.map(put, range(files)))


def _bare(scene: Scene, client: S3Store) -> float:
    folder = scene.new_folder("bare")
    scene.rest()
    began = time.perf_counter()
    keys = [meta["path"] for page in obstore.list(client, "data", chunk_size=1000) for meta in page]

    def get(key: str) -> None:
        path = folder / key.replace("/", "-")
        with open(path, "wb") as file:
            file.write(obstore.get(client, key).bytes())

    with ThreadPoolExecutor(WORKERS) as several:
        list(several.map(get, keys))
    return time.perf_counter() - began


def _home(scene: Scene, server: S3Server) -> Home:
    home = Home(scene, scene.source("read_data.py"))
    home.environ |= {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "AWS_REGION": "us-east-1",
    }
    home.job_file("data", entry_point="read_data.py", inputs={"training": f"{server.url}/data"})
    return home


def _first(scene: Scene, server: S3Server, files: int) -> float:
    home = _home(scene, server)
    scene.rest()
    return _fetching_s(home, files)


def _fetching_s(home: Home, files: int) -> float:
    """How long a new job fetched its data; it must have seen all of them."""
    job_id = home.submit("data.json")
    home.wait(job_id)
    shown = json.loads(home.command("show", "--json", job_id).output)
    found = shown["job"]["attempts"][-1]["inputs"]["training"]["files"]
    if found != files:
        raise BenchFailed(f"the job read {found} files of {files}")
    return float(shown["ledger_s"]["fetching"])
