"""Files that several ranks use without waiting for each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ddpnb.recording import phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.events.models import CheckpointSaved
from ddpnb.recording.facts.snapshot import PerRank, Snapshot
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.source.removals import removals
from ddpnb.rules.rule import Draft, each, family, refine, refined, say

CHECKPOINT_RACE = FindingType("DDP603", "checkpoint-race", severity="warning")

_ABSENT = re.compile(r"No such file or directory: '([^'\n]{1,1000})'")
_LEAST = 3  # characters of a text that says which file is meant


@family(CHECKPOINT_RACE)
def one_file(snap: Snapshot) -> Iterable[Draft]:
    """Several ranks write one file."""
    paths = {save.path for saves in snap.every(CheckpointSaved).values() for save in saves}
    for path in sorted(path for path in paths if path.startswith("/") and not path.startswith("/dev/")):
        writers = snap.last(CheckpointSaved, path=path)
        if len(writers) > 1:
            yield Draft(
                say(
                    "{who} all write {path}: the writes race, and a reader may see a partial file.", writers, path=path
                ),
                tuple(writers),
                "Save on rank 0 only (if rank == 0: torch.save(...); then dist.barrier()), or to one file per rank.",
                writers,
            )
            return


@refine(CHECKPOINT_RACE, refines=("DDP312",), needs=())
def removed(snap: Snapshot, finding: Finding) -> Draft | None:
    """A rank did not find a file that another rank had removed: that its line means this file is read from the source."""
    rank, path = next(iter(snap.ranks.among(finding.culprits).of(_absent).items()), (-1, ""))
    if not path:
        return None
    lines = {
        (file, line): text.splitlines()[line - 1].strip()
        for file, text in snap.recording.sources.items()
        for line, texts in removals(text).items()
        if any(len(one) >= _LEAST for one in texts) and all(one in path for one in texts)
    }
    removers = _removers(snap, rank, lines) if lines else PerRank()
    if not removers:
        return None
    text = "Rank {rank} did not find {name}, which {others} removed{at}."
    name, at = path.rsplit("/", 1)[-1], phrases.at(next(iter(removers.values())))
    ran = {
        other: f"Rank {other} ran {lines[site.file, site.line]}{phrases.at(site)}." for other, site in removers.items()
    }
    return refined(
        finding,
        CHECKPOINT_RACE,
        summary=say(text, rank=rank, name=name, others=tuple(removers), at=at),
        culprits=tuple(removers),
        waiting=phrases.besides(finding.waiting, removers),
        where=(*removers.items(), *finding.where),
        evidence=(*each(ran, ran.__getitem__), *finding.evidence),
        remedy="Remove a file when no rank needs it any more: after a dist.barrier() behind its last use.",
        certainty="likely",
    )


def _absent(record: RankRecord) -> str | None:
    """The path of the file that a rank did not find, if that ended it."""
    ending = record.ending
    found = (
        _ABSENT.search(ending.message[:2000])
        if ending is not None and ending.exception == "FileNotFoundError"
        else None
    )
    return found[1] if found else None


def _removers(snap: Snapshot, rank: int, lines: Mapping[tuple[str, int], str]) -> PerRank[Site]:
    """The other ranks that ran one of these lines before this rank ended, if this rank did not: the last one of each."""
    ending = snap.ranks[rank].ending
    until_ns = (ending.at_ns if ending is not None else 0) or 1 << 62

    def last(record: RankRecord) -> Site | None:
        if record.executed is None:
            return None
        ran = (site for window in record.executed.during(0, until_ns) for site in record.executed.of(window))
        return next((site for site in reversed(list(ran)) if (site.file, site.line) in lines), None)

    found = snap.ranks.of(last)
    return found if rank not in found else PerRank()
