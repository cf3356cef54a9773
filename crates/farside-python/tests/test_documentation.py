"""What the documents show works as it stands there."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A comment right before a block may hold what is run first: `xtask/src/book/document.rs` has the rules.
BLOCK = re.compile(r"(?:^<!-- before\n((?:(?!-->).)*)^-->\n)?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks():
    for document in DOCUMENTS:
        for before, block in BLOCK.findall(document.read_text()):
            yield pytest.param(before + block, id=f"{document.name}: {block.splitlines()[0]}")


def test_the_documents_have_blocks():
    assert len(list(blocks())) >= 7


@pytest.mark.parametrize("block", list(blocks()))
def test_a_block_runs(block, tmp_path):
    pytest.importorskip("numpy")
    # Other tests may use files there at the same time.
    block = block.replace("/dev/shm/", f"{tmp_path}/")
    done = subprocess.run([sys.executable, "-X", "dev", "-c", block], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
