import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import farside

MEMORY = 64 << 20


@pytest.fixture
def store():
    with farside.Store(memory=MEMORY) as store:
        yield store


@pytest.fixture
def path():
    folder = tempfile.mkdtemp(prefix="farside-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield pathlib.Path(folder) / "store.segment"
    shutil.rmtree(folder)


@pytest.fixture
def node(path):
    """A memory node behind a connection; needs the program `farside`, which FARSIDE_PROGRAM names."""
    program = os.environ.get("FARSIDE_PROGRAM")
    if program is None:
        pytest.skip("FARSIDE_PROGRAM does not name the program `farside`")
    command = [program, "node", "--segment", path, "--memory", "64MiB", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
        for line in node.stdout:
            if "listening on" in line or "127.0.0.1:" in line:
                address = next(word for word in line.split() if word.startswith("127.0.0.1:")).rstrip(",.;:")
                break
        else:
            pytest.fail("the node did not say where it listens")
        yield f"tcp:{address}"
        node.kill()


@pytest.fixture(params=["memory", "segment", "tcp"])
def opened(request):
    """A store wherever the memory may be."""
    if request.param == "memory":
        store = farside.Store(memory=MEMORY)
    elif request.param == "segment":
        store = farside.Store(request.getfixturevalue("path"), memory=MEMORY)
    else:
        store = farside.Store(request.getfixturevalue("node"))
    with store:
        yield store
