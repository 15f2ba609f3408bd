"""DDP707: a script that starts its ranks itself, run by a launcher that starts ranks too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.events.startup import InitProcessGroup, RanksStarted
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import frames_of
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.causes.blocked import in_a_call
from ddpnb.rules.rule import Draft, explained, findings_of, refine, rule, title

_JOINING = re.compile(r"EADDRINUSE|address already in use|init_process_group|rendezvous", re.IGNORECASE)
_PROCESSES = re.compile(r"/multiprocessing/|/subprocess\.py$")
_NEAR = 6  # of the frames of a rank


@rule("DDP707", "own-ranks", severity="warning")
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
        title(
            f"The script starts its ranks itself{phrases.at(first.site)} ({first.how}){times}.",
            f"The script starts its ranks itself{phrases.at(first.site)}{times}.",
        ),
        ranks,
        "Prefix the command that starts the script without a launcher (in a cell of a notebook with ! before it): "
        f"ddpnb run -- {command}. Or remove the start of processes from the script, and let the launcher start the ranks.",
        starts.of(lambda events: events[0]),
        evidence=(
            f"Rank {rank} started {processes} with {first.how}{phrases.at(first.site)}, and did not call init_process_group itself.",
            f"ddpnb does not watch the processes that {phrases.ranks(ranks)} started.",
            *(["What they run calls init_process_group, or is a launcher."] if first.joins else []),
        ),
        certainty="likely",
    )


def _started(record: RankRecord) -> list[RanksStarted]:
    """The processes that a rank started as ranks; none if it became a rank itself."""
    return [] if record.events(InitProcessGroup) else record.events(RanksStarted)


def _command(recorded: str) -> str:
    """A recorded command line as one to type: a script with its arguments, and nothing else: a stranger may have written it."""
    try:
        words = shlex.split(recorded)
    except ValueError:  # it was cut
        words = recorded.split()[:2]
    is_script = len(words) > 1 and words[0] == "python" and not words[1].startswith("-")
    return shlex.join(words) if is_script else ""


@refine(refines=("DDP312", "DDP313"), gives=("DDP707",))
def own_ranks_failed(snap: Snapshot, finding: Finding) -> Draft | None:
    """The processes of several ranks claim one address, or a rank waits for the processes that it started as ranks."""
    causes = findings_of(snap.recording, own_ranks)
    records = snap.ranks.among(finding.culprits).values()
    joins = finding.code == "DDP312" and all(_JOINING.search(_said(record)) for record in records)
    waits = finding.code == "DDP313" and any(map(_waits_for_child, records)) and not in_a_call(snap, finding)
    if not causes or not (joins or waits) or not set(finding.culprits) <= set(causes[0].culprits):
        return None
    return explained(
        finding,
        causes,
        type=replace(causes[0].type, after_patience=finding.type.after_patience),
        severity="error",
        waiting=finding.waiting,
        evidence=(*causes[0].evidence, *finding.evidence),
        tensors=finding.tensors,
    )


def _said(record: RankRecord) -> str:
    message = record.ending.message if record.ending is not None else ""
    return (message or record.output)[-20_000:]


def _waits_for_child(record: RankRecord) -> bool:
    inside = any(_PROCESSES.search(frame.file) for frame in frames_of(record)[-_NEAR:])
    return inside or record.process.waits_on == "a child process"
