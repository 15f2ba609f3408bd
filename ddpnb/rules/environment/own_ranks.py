"""DDP707: a script that starts its ranks itself, run by a launcher that starts ranks too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.facts.snapshot import Snapshot
from ddpnb.facts.stacks import frames_of
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.events.startup import InitProcessGroup, RanksStarted
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.rules.rule import Draft, family, findings_of

OWN_RANKS = FindingType("DDP707", "own-ranks", severity="warning")

_JOINING = re.compile(r"EADDRINUSE|address already in use|init_process_group|rendezvous", re.IGNORECASE)
_PROCESSES = re.compile(r"/multiprocessing/|/subprocess\.py$")
_NEAR = 6  # of the frames of a rank


@family(OWN_RANKS)
def own_ranks(snap: Snapshot) -> Iterable[Draft]:
    """The ranks of the launcher never joined a group, but started processes that do."""
    starts = snap.ranks.of(lambda record: _started(record) or None)
    if not starts:
        return
    ranks = tuple(starts)
    rank, of_rank = next(iter(starts.items()))
    first = of_rank[0]
    times = f": the job was started {len(ranks)} times" if len(ranks) > 1 else ""
    processes = f"{sum(event.count for event in of_rank)} processes" if first.count > 1 else "processes"
    command = next(filter(None, (_command(event.command) for event in of_rank)), "python SCRIPT")
    yield Draft(
        f"The script starts its ranks itself{phrases.at(first.site)} ({first.how}), on {phrases.ranks(ranks)}{times}. ddpnb does "
        "not watch them.",
        ranks,
        "Prefix the command that starts the script without a launcher (in a cell of a notebook with ! before it): "
        f"ddpnb run -- {command}. Or remove the start of processes from the script, and let the launcher start the ranks.",
        starts.of(lambda events: events[0]),
        evidence=(
            f"Rank {rank} started {processes} with {first.how}{phrases.at(first.site)}, and did not call init_process_group itself.",
            *(["What they run calls init_process_group, or is a launcher."] if first.joins else []),
        ),
        certainty="likely",
    )


def find(recording: Recording) -> Finding | None:
    return next(iter(findings_of(recording, own_ranks)), None)


def _started(record: RankRecord) -> list[RanksStarted]:
    """The processes that a rank started as ranks; none if it became a rank itself."""
    return [] if record.events(InitProcessGroup) else record.events(RanksStarted)


def joined_twice(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP707 in the place of a failure to join: the processes of several ranks claim one address."""
    records = [recording.ranks[rank] for rank in finding.culprits]
    failed = all(_JOINING.search((_message(record) or record.output)[-20_000:]) for record in records)
    return _cause(recording, finding) if failed else None


def _message(record: RankRecord) -> str:
    return record.ending.message if record.ending is not None else ""


def _command(recorded: str) -> str:
    """A recorded command line as one to type: a script with its arguments, and nothing else: a stranger may have written it."""
    try:
        words = shlex.split(recorded)
    except ValueError:  # it was cut
        words = recorded.split()[:2]
    is_script = len(words) > 1 and words[0] == "python" and not words[1].startswith("-")
    return shlex.join(words) if is_script else ""


def waits_for_own(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP707 in the place of a wait: a rank waits for the processes that it started as ranks."""
    records = [standings[rank].record for rank in finding.culprits if rank in standings]
    return _cause(recording, finding) if any(map(_waits_for_child, records)) else None


def _waits_for_child(record: RankRecord) -> bool:
    inside = any(_PROCESSES.search(frame.file) for frame in frames_of(record)[-_NEAR:])
    return inside or record.process.waits_on == "a child process"


def _cause(recording: Recording, finding: Finding) -> Finding | None:
    own = find(recording)
    if own is None or not set(finding.culprits) <= set(own.culprits):
        return None
    return replace(
        own,
        type=replace(OWN_RANKS, after_patience=finding.type.after_patience),
        severity="error",
        waiting=finding.waiting,
        evidence=(*own.evidence, *finding.evidence),
        tensors=finding.tensors,
    )
