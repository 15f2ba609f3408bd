"""What the tests of this folder share: frames as torch leaves them, and one way to ask."""

from __future__ import annotations

from typing import Any

from ddpnb.model.stacks import Frame
from ddpnb.rules.messages.explain import explain
from ddpnb.rules.messages.explained import Explained

SITE = "/venv/lib/python3.11/site-packages/"
FILE = "/home/user/train.py"


def inside(path: str, function: str, line: int = 100) -> Frame:
    """A frame of an installed package."""
    return Frame(SITE + path, line, function, user=False)


def user(line: int = 1, function: str = "main", **local: str) -> Frame:
    return Frame(FILE, line, function, locals=local)


def told(message: str, exception: str = "RuntimeError", *frames: Frame, source: str = "", **more: Any) -> Explained:
    """The explanation, which there must be."""
    found = explain(message, exception, frames=frames, sources={FILE: source} if source else {}, **more)
    assert found is not None, "nobody claims it"
    assert found.summary.endswith("."), found.summary
    assert found.summary.count("{") == 0
    return found
