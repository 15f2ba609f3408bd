"""The skill file: what an agent asks, in which order."""

from __future__ import annotations

from importlib.resources import files


def skill() -> str:
    """The order of questions, as Markdown."""
    return files("ddpnb.agents").joinpath("skill.md").read_text(encoding="utf-8").rstrip("\n")
