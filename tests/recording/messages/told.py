"""What the tests of this folder share: examples of errors, and the circumstances in which they were raised."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ddpnb.recording.stacks import Frame

SITE = "/venv/lib/python3.11/site-packages/"
FILE = "/home/user/train.py"
EXAMPLES: dict[str, list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("examples.toml").read_text())


def inside(path: str, function: str) -> Frame:
    """A frame of an installed package."""
    return Frame(SITE + path, 100, function, user=False)


def user(line: int = 1) -> Frame:
    return Frame(FILE, line, "main")


def circumstances(example: dict[str, Any]) -> dict[str, Any]:
    """Where an example was raised, and what is known of the model."""
    source = example.get("source", example.get("line", ""))
    below = [inside(*frame.split(":")) for frame in example.get("through", ())]
    return {
        "frames": [user(max(1, source.count("\n") + 1)), *below],
        "sources": {FILE: source} if source else {},
        "traceback": example.get("traceback", ""),
        "names": example.get("names", ()),
        "frozen": example.get("frozen", ()),
    }


def as_log(example: dict[str, Any]) -> str:
    """An example as Python prints it; a line of a log as it is."""
    exception = example.get("raised", "RuntimeError")
    if not exception:
        return example["text"]
    lines = [
        "Traceback (most recent call last):",
        f'  File "{FILE}", line 1, in main',
        f"    {example.get('line', 'step()')}",
    ]
    for path, function in (frame.split(":") for frame in example.get("through", ())):
        lines += [f'  File "{SITE + path}", line 100, in {function}', "    ..."]
    module = "struct." if exception == "error" else ""
    return "\n".join([*lines, f"{module}{exception}: {example['text']}", ""])
