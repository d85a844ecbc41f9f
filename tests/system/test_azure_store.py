"""Does Azure Blob Storage keep the promises of the port? Against Azurite, installed with npm into a folder of the test."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import http.client
import itertools
import socket
import subprocess
import time

import pytest

from trainmaster.adapters.object_store import open_store
from trainmaster.errors import StoreRejected
from trainmaster.testing.conformance.object_store import Address, ObjectStoreConformance

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

#: The account of every Azurite, published in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

numbers = itertools.count()


@pytest.fixture(scope="session")
def azure(tmp_path_factory):
    """Options for a running Azurite with a container named "trainmaster"."""
    folder = tmp_path_factory.mktemp("azurite")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "azurite"], cwd=folder, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [folder / "node_modules/.bin/azurite-blob", "--silent", "--location", folder / "data"]
    flags = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck", "--disableTelemetry"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL) as process:
        try:
            endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
            options = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint}
            while not make_container(port):
                assert process.poll() is None
                time.sleep(0.1)
            yield options
        finally:
            process.terminate()


def make_container(port):
    """One signed request, which obstore cannot make; False while the server is not up yet."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    resource = f"/{ACCOUNT}/{ACCOUNT}/trainmaster\nrestype:container"
    signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items()) + resource
    signature = hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("PUT", f"/{ACCOUNT}/trainmaster?restype=container", headers=headers)
        status = connection.getresponse().status
    except ConnectionError:
        return False
    finally:
        connection.close()
    assert status == 201
    return True


class TestAzure(ObjectStoreConformance):
    @pytest.fixture
    def address(self, azure):
        return Address(f"az://trainmaster/a prefix/{next(numbers)}", azure)


def test_a_wrong_key_is_a_clear_no(azure):
    wrong = base64.b64encode(b"wrong" * 8).decode()
    store = open_store("az://trainmaster", options=azure | {"account_key": wrong})
    for call in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: list(store.list_keys("k"))):
        with pytest.raises(StoreRejected) as caught:
            call()
        assert wrong not in str(caught.value)


def test_a_missing_container_is_a_clear_no(azure):
    store = open_store("az://nobody-made-this", options=azure)
    for call in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: list(store.list_keys("k"))):
        with pytest.raises(StoreRejected, match="ContainerNotFound"):
            call()
