"""Ranks that are blocked outside any collective: in a forked child, in the start of a logger."""

from __future__ import annotations

import re
from dataclasses import replace

from ddpnb.facts.stacks import frames_of
from ddpnb.facts.standings import Standing
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE
from ddpnb.model.events.startup import UsedAfterFork
from ddpnb.model.findings import Finding, FindingType
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.stacks import Frame

USED_AFTER_FORK = FindingType("DDP109", "used-after-fork", after_patience=True)
LOGGER_ON_ALL_RANKS = FindingType("DDP702", "logger-on-all-ranks", after_patience=True)

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


def forked(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP109: a child that was forked uses the group of its parent."""
    for rank in finding.culprits:
        record = recording.ranks.get(rank)
        used = record.events(UsedAfterFork) if record is not None else []
        if not used:
            continue
        site = used[-1].site if used[-1].site != NO_SITE else standings[rank].site
        return replace(
            finding,
            type=USED_AFTER_FORK,
            summary=f"A process that rank {rank} forked uses the rank's process group{phrases.at(site)}: the backend's threads "
            "do not exist there, so it is blocked forever.",
            where=((rank, site), *((r, s) for r, s in finding.where if r != rank)),
            remedy="Call collectives only in the process that created the group; start workers with the 'spawn' context, and "
            "let them create their own group.",
        )
    return None


def logger(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP702: a library for logging or downloads blocks; by the name of a function alone it is a guess."""
    told = {r: _logger_frame(standings[r].record) for r in finding.culprits if r in standings}
    culprits = tuple(sorted(r for r, frame in told.items() if frame is not None))
    if not culprits:
        return _by_name(standings, finding)
    frame = told[culprits[0]]
    assert frame is not None
    site = next((f.site for f in reversed(frames_of(standings[culprits[0]].record)) if f.user), frame.site)
    return replace(
        finding,
        type=LOGGER_ON_ALL_RANKS,
        culprits=culprits,
        summary=f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'is', 'are')} blocked in {frame.function}(), the start of a logger "
        f"or a download{phrases.at(site)}, while {phrases.ranks(finding.waiting)} {phrases.verb(finding.waiting, 'waits', 'wait')}.",
        remedy="Start loggers and downloads on rank 0 only (if rank == 0: ...; then dist.barrier()), or give each rank its own run.",
    )


def _logger_frame(record: RankRecord) -> Frame | None:
    """The innermost frame of such a library. Files of the user's own may lie in a folder that is called so."""
    return next((f for f in reversed(frames_of(record)) if not f.user and _LIBRARIES.search(f.file)), None)


def _by_name(standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """The finding with a guess: a function of the user's is called like a logger or a download."""
    for rank in finding.culprits:
        users = [frame for frame in frames_of(standings[rank].record) if frame.user] if rank in standings else []
        frame = next((f for f in reversed(users[-_NEAR:]) if _CALLED_SO.search(f.function)), None)
        if frame is not None:
            guess = (
                f"Possibly the start of a logger or a download: rank {rank} is in {frame.function}(). Inferred from the "
                "function's name, not observed."
            )
            return replace(finding, evidence=(*finding.evidence, guess))
    return None
