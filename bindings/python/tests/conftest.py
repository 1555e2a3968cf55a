"""A daemon in this process, and clients of it."""

import os
import pathlib

import pytest

import nicstripe


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def server(root):
    with nicstripe.serve(root) as server:
        yield server


@pytest.fixture
def connect(server):
    """Connects to the daemon, with settings; closes the clients at the end."""
    clients = []

    def connect(**settings):
        client = nicstripe.Client(server.host, port=server.port, home=server.home, **settings)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture(scope="session")
def binary():
    """Path of the command `nicstripe`: that of `NICSTRIPE_BINARY`."""
    path = os.environ.get("NICSTRIPE_BINARY")
    if path is None or not pathlib.Path(path).is_file():
        pytest.skip("NICSTRIPE_BINARY names no command to test with")
    return path
