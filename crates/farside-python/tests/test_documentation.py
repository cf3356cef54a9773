"""What the documents show works as it stands there."""

import pathlib
import re
import subprocess
import sys

import pytest

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs/python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)


def test_the_document_has_blocks():
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_a_block_runs(block):
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-X", "dev", "-c", block], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
