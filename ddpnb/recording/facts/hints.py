"""Hints: which condition may have decided the path of a rank, by the source text."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Hint
from ddpnb.recording.recording import Recording
from ddpnb.recording.source.branches import candidates, other_ways


def deciding_branch(recording: Recording, path: Sequence[Site], ended: bool = False) -> Hint | None:
    """The only condition that may have kept a rank from the end of ``path``; None where something else may have.

    Args:
        recording: holds the sources.
        path: the lines by which others came there, outermost first.
        ended: the rank has left the script, so a ``continue`` is no explanation.
    """
    if any(other_ways(recording.sources.get(site.file, ""), site.line) for site in path):
        return None
    found = {
        (site.file, line): text
        for site in path
        for line, text in candidates(recording.sources.get(site.file, ""), site.line, ended)
    }
    if len(found) != 1:
        return None
    ((file, line), text) = next(iter(found.items()))
    return Hint(file, line, f"{text} decides which ranks get there")
