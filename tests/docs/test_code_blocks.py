"""What documents, pages, notebooks and docstrings show can be typed: it compiles, and its names and options exist."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shlex
import types
from pathlib import Path

import pytest

import ddpnb
from ddpnb import cli
from tests.docs.code_blocks import blocks, commands, inline_code, misuses

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "ddpnb/rules/catalogue/pages").glob("*.md")),
    *sorted((ROOT / "notebooks").rglob("*.md")),
]
documents = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def refusal(line: str) -> str:
    """Why the parser of the command line does not take this; empty if it does."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            cli.parse(shlex.split(line)[1:])
        except SystemExit as end:
            return said.getvalue() if end.code else ""
    return ""


@documents
def test_python_blocks_use_what_exists(path):
    wrong = []
    for block in blocks(path.read_text()):
        if block.language in ("python", "py"):
            wrong += [(block.line, text) for text in misuses(block.text)]  # it parses, or a SyntaxError says where not
    assert not wrong


@documents
def test_command_lines_parse(path):
    text = path.read_text()
    typed = [line for block in blocks(text) for line in commands(block)]
    # In a sentence there are forms such as `ddpnb pitfalls [list, ...]`, and options without what follows them.
    whole = [
        code for code in inline_code(text) if code.startswith("ddpnb ") and not re.search(r"[\[\]|{}]|\.\.\.", code)
    ]
    refused = [refusal(line) for line in typed if refusal(line)]
    refused += [
        code
        for code in whole
        if all(refusal(f"{code}{rest}") for rest in ("", " 1", " train.py", " 1 train.py", " hang.ddpnb -o FILE"))
    ]
    assert not refused


@documents
def test_json_blocks_parse(path):
    for block in blocks(path.read_text()):
        if block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_use_what_exists(path):
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    plain = [source for source in cells if not re.search(r"^[%!]|= %", source, re.MULTILINE)]
    assert not list(misuses("\n".join(plain)))


def examples() -> list[object]:
    """The name and the example of each public name and method."""
    found = {}
    for name in ddpnb.__all__:
        thing = getattr(ddpnb, name)
        found[name] = inspect.getdoc(thing) or ""
        if inspect.isclass(thing):
            for part, member in inspect.getmembers_static(thing, lambda one: isinstance(one, types.FunctionType)):
                found[f"{name}.{part}"] = inspect.getdoc(member) or ""
    return [
        pytest.param("\n".join(re.findall(r"^ *(?:>>>|\.\.\.) ?(.*)$", text, re.MULTILINE)), id=name)
        for name, text in found.items()
        if ">>>" in text
    ]


@pytest.mark.parametrize("source", examples())
def test_examples_of_docstrings_use_what_exists(source):
    assert not list(misuses(source))


# -- the checks themselves


@pytest.mark.parametrize(
    "source",
    [
        "ddpnb.start(4)",
        "ddpnb.launch(4, ranks=2)",
        "world.inject()",
        "world.runs_of(1)",
        "with ddpnb.launch(4) as w:\n    w.hold('all_reduce', number=5)",
        "other = world.run('train.py')\nother.result",
        "ddpnb.load('x').of_rank",
        "r = world.run('t.py').wait()\nr.findings_of",
    ],
)
def test_a_name_that_does_not_exist_is_found(source):
    assert list(misuses(source))


def test_what_exists_is_not_found():
    source = "with ddpnb.launch(4) as w:\n    run = w.run('train.py', 'x', fresh=True)\n    run.wait().diagnosis.to_markdown()"
    assert not list(misuses(source))
    assert not list(misuses("run = other()\nrun.anything"))  # a name may hold something else


def test_a_command_line_that_does_not_parse_is_found():
    assert refusal("ddpnb run --no-such-option train.py")
    assert refusal("ddpnb attach --stacks=1 4711")
    assert not refusal("ddpnb run -n 2 --keep train.py --any-option-of-the-script")
