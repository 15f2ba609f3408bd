"""What documents and docstrings promise, on live ranks."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from pathlib import Path

import pytest

import ddpnb
from tests.docs.code_blocks import blocks

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.world]


def plain(text: str) -> str:
    """Without times, values (where the stack of a rank was read), and ends of lines, which depend on the width of the terminal."""
    text = re.sub(r"(?m)^ +\w+ = .* on ranks? .*$", "", text)
    return " ".join(re.sub(r"\d+\.\d+ s\b", "", text).split())


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.version_info < (3, 12), reason="the card shows lines that were recorded")
@pytest.mark.parametrize(
    ("document", "script", "ranks"),
    [
        pytest.param("docs/getting-started.md", "train.py", 2, marks=pytest.mark.full),
        ("README.md", "hang.py", 4),
    ],
)
def test_the_script_of_a_document_gives_the_card_that_it_shows(document, script, ranks, tmp_path, cli):
    shown = [block.text for block in blocks((ROOT / document).read_text())]
    (tmp_path / script).write_text(next(text for text in shown if "dist.init_process_group" in text))
    command = f"ddpnb run -n {ranks} {script}"
    assert any(command in text for text in shown)
    card = next(text for text in shown if "ddpnb: hang" in text).removeprefix(f"$ {command}\n")
    done = cli(*command.split()[1:], cwd=tmp_path, fork=True)
    assert done.returncode == 3
    assert plain(card) in plain(done.stderr)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(ddpnb.World.run, marks=pytest.mark.full, id="run"),
        ddpnb.World.init,
        ddpnb.World.inject,
        ddpnb.World.resume,
        ddpnb.World.save,
        ddpnb.World.heal,
    ],
    ids=lambda method: method.__name__,
)
def test_examples_of_docstrings_run_as_they_are(method, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\n")
    names = {"ddpnb": ddpnb, "world": world}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(method), names, method.__name__, None, None)
    assert example.examples
    said = []
    try:
        doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    finally:
        world.heal()
    assert not said
