import pytest

pytest.register_assert_rewrite("trainmaster.testing.conformance")

from trainmaster.testing.s3_server import s3_server  # noqa: E402 – after the line above


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A real S3 server, one for the whole run."""
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running
