"""Ranks that are blocked outside any collective: in a forked child, in the start of a logger."""

from __future__ import annotations

import re

from ddpnb.recording import phrases
from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.events.startup import UsedAfterFork
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stacks import frames_of
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.stacks import Frame
from ddpnb.rules.rule import Draft, refine, refined, say, title

_LIBRARIES = re.compile(
    r"/(wandb|mlflow|tensorboard|tensorboardX|huggingface_hub|datasets|neptune|comet_ml|clearml|swanlab|trackio)/"
)
_CALLED_SO = re.compile(
    r"wandb|tensorboard|summarywriter|mlflow|neptune|comet|clearml|swanlab|trackio|huggingface|hf_|snapshot_download"
    r"|(?<![a-z])(aim|hub)(?![a-z])|from_pretrained|load_dataset|download|logger"
    r"|(init|start|create|set_?up|new|open)\w{0,20}(experiment|tracker)",
    re.IGNORECASE,
)
_NEAR = 3  # of the user's frames


USED_AFTER_FORK = FindingType("DDP109", "used-after-fork", after_patience=True)
LOGGER_ON_ALL_RANKS = FindingType("DDP702", "logger-on-all-ranks", after_patience=True)


@refine(USED_AFTER_FORK, refines=("DDP313", "DDP314"))
def used_after_fork(snap: Snapshot, finding: Finding) -> Draft | None:
    """A child that was forked uses the group of its parent."""
    used = snap.last(UsedAfterFork).among(finding.culprits)
    if not used or in_a_call(snap, finding):
        return None
    rank, event = next(iter(used.items()))
    site = event.site if event.site != NO_SITE else snap.standings[rank].site
    return refined(
        finding,
        summary=f"A process that rank {rank} forked uses the rank's process group{phrases.at(site)}.",
        evidence=(
            "The backend's threads do not exist in the forked process, so it is blocked forever.",
            *finding.evidence,
        ),
        where=((rank, site), *((r, s) for r, s in finding.where if r != rank)),
        remedy="Call collectives only in the process that created the group; start workers with the 'spawn' context, and "
        "let them create their own group.",
    )


def in_a_call(snap: Snapshot, finding: Finding) -> bool:
    """Whether it is known of a culprit in which call it waits: nothing else explains that."""
    standings = snap.standings
    return any(rank in standings and standings[rank].function for rank in finding.culprits)


@refine(
    LOGGER_ON_ALL_RANKS,
    refines=("DDP313",),
    after=("DDP109", "DDP317", "DDP505", "DDP507", "DDP707"),
    needs=("stacks",),
)
def logger_on_all_ranks(snap: Snapshot, finding: Finding) -> Draft | None:
    """A library for logging or downloads blocks; by the name of a function alone it is a guess."""
    if in_a_call(snap, finding):
        return None
    frames = snap.ranks.among(finding.culprits).of(_logger_frame)
    if not frames:
        guess = _by_name(snap, finding)
        return refined(finding, finding.type, evidence=(*finding.evidence, guess)) if guess else None
    culprits = tuple(frames)
    frame = frames[culprits[0]]
    site = next((f.site for f in reversed(frames_of(snap.ranks[culprits[0]])) if f.user), frame.site)
    text = "{who} [is|are] blocked in {function}(), the start of a logger or a download{at}."
    return refined(
        finding,
        culprits=culprits,
        summary=title(*(say(text, culprits, function=frame.function, at=at) for at in (phrases.at(site), ""))),
        remedy="Start loggers and downloads on rank 0 only (if rank == 0: ...; then dist.barrier()), or give each rank its own run.",
    )


def _logger_frame(record: RankRecord) -> Frame | None:
    """The innermost frame of such a library. Files of the user's own may lie in a folder that is called so."""
    return next((f for f in reversed(frames_of(record)) if not f.user and _LIBRARIES.search(f.file)), None)


def _by_name(snap: Snapshot, finding: Finding) -> str:
    """A guess: a function of the user's is called like a logger or a download."""
    for rank, record in snap.ranks.among(finding.culprits).items():
        users = [frame for frame in frames_of(record) if frame.user]
        frame = next((f for f in reversed(users[-_NEAR:]) if _CALLED_SO.search(f.function)), None)
        if frame is not None:
            return (
                f"Possibly the start of a logger or a download: rank {rank} is in {frame.function}(). Inferred from the "
                "function's name, not observed."
            )
    return ""
