"""Scripts that refuse their arguments: argparse, click and typer print a usage and exit with status 2."""

from __future__ import annotations

import re

from ddpnb.recording import phrases
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import RankRecord
from ddpnb.rules.rule import Draft, refine, refined, waited_for
from ddpnb.texts import shortened

_STATUS = 2
REFUSED = "The script refused its arguments"  # how the summary begins
_USAGE = re.compile(r"^usage: .{1,1000}", re.IGNORECASE | re.MULTILINE)
# "train.py: error: ..." (argparse), "Error: ..." (click); typer draws a box.
_ERROR = re.compile(
    r"^(?:.{1,200}?: )?error: (.{1,1000})$|^.{0,8} Error .{0,400}\n.{0,4}[\u2502|] (.{1,400}?) *[\u2502|] *$",
    re.IGNORECASE | re.MULTILINE,
)
_PARSERS = re.compile(r"/argparse\.py$|/click/\w+\.py$|/typer/\w+\.py$")


@refine(
    refines=("DDP311", "DDP312"),
    after=("DDP103", "DDP301", "DDP403", "DDP404", "DDP701", "DDP706", "DDP707"),
    needs=(),
)
def refused_arguments(snap: Snapshot, finding: Finding) -> Draft | None:
    """Ranks exited, in the words of the script's own usage error."""
    told = {rank: _message(snap.ranks[rank]) for rank in finding.culprits}
    if not told or not all(told.values()):
        return None
    messages: dict[str, list[int]] = {}
    for rank, message in told.items():
        messages.setdefault(message, []).append(rank)
    summary = f"{REFUSED} on {phrases.ranks(finding.culprits)}: " + (
        next(iter(messages))
        if len(messages) == 1
        else phrases.by_side(list(messages.values()), lambda rank: told[rank].rstrip("."))
    )
    summary += waited_for(finding.culprits, finding.waiting)
    first = snap.ranks[finding.culprits[0]]
    usage = [match[0] for match in _USAGE.finditer(first.output)][-1:]
    seen = all((ending := snap.ranks[rank].ending) is not None and ending.frames for rank in finding.culprits)
    return refined(
        finding,
        finding.type,
        summary=phrases.sentence(summary),
        evidence=(*(f"It printed: {shortened(one.strip(), 200)}" for one in usage), *finding.evidence),
        remedy="Correct the arguments of the script" + ("" if len(messages) == 1 else ", the same on all ranks") + ".",
        certainty=finding.certainty if seen else "likely",
    )


def _message(record: RankRecord) -> str:
    """The usage error that this rank ended with, from the end of its output; empty if it did not."""
    ending = record.ending
    if ending is None or ending.code != _STATUS or ending.how not in ("exited", "died"):
        return ""
    if ending.frames and ending.frames[-1].user:
        return ""  # the script called sys.exit() itself
    usages = list(_USAGE.finditer(record.output))
    errors = list(_ERROR.finditer(record.output, usages[-1].end())) if usages else []
    if errors:
        return shortened((errors[-1][1] or errors[-1][2]).strip(), 200)
    # Under another launcher the output of a rank is not recorded.
    unknown = not record.output and ending.frames and _PARSERS.search(ending.frames[-1].file)
    return "see the usage that it printed" if unknown else ""
