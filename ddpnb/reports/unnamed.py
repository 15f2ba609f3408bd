"""Stacks of processes of which no file says the rank: they are numbered in the order of their process ids."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.reports.facts import Fact, Identity, Speaker, StacksSeen, Unknown

# Processes that are no ranks: launchers, and workers of data loaders.
_OTHERS = (
    "torch/distributed/elastic/",
    "torch/distributed/run.py",
    "torch/utils/data/_utils/worker.py",
    "torch/_inductor/",
    "multiprocessing/resource_tracker.py",
)
_GUESSED = (
    "No file says which process is which rank: they are numbered in the order of their process ids, as a launcher starts them "
    'on one machine. A line such as "Rank 3:" above each stack, or the rank in the file\'s name, says it.'
)


def numbered(facts: Sequence[Fact]) -> list[Fact]:
    """The facts, with ranks for processes that are known by their stacks alone, where no fact names a rank.

    Args:
        facts: of all files.

    Returns:
        The same facts, and before them who is which rank.
    """
    if any(not isinstance(fact, Unknown) and not isinstance(fact, StacksSeen) for fact in facts):
        return list(facts)
    processes = {fact.speaker: fact for fact in facts if isinstance(fact, StacksSeen)}
    ranks = sorted(
        (speaker.host, speaker.pid) for speaker, fact in processes.items() if speaker.pid and not _is_other(fact)
    )
    if not ranks or any(speaker.rank is not None for speaker in processes):
        return list(facts)
    return [*(Identity(Speaker(rank, pid, host)) for rank, (host, pid) in enumerate(ranks)), Unknown(_GUESSED), *facts]


def _is_other(fact: StacksSeen) -> bool:
    return any(
        part in frame.file.replace("\\", "/")
        for stack in fact.stacks
        if stack.main
        for frame in stack.frames
        for part in _OTHERS
    )
