"""Ranks that stand outside of collectives: in a forked child, in the start of a logger."""

from __future__ import annotations

import re
from dataclasses import replace

from ddpnb.analysis import phrases
from ddpnb.analysis.causes.stacks import frames_of
from ddpnb.analysis.waiting.standing import Standing
from ddpnb.model.calls import Site
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.stacks import Frame

_LOGGERS = re.compile(
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
        used = [p for p in record.phases if p.name == "used after fork"] if record is not None else []
        if not used:
            continue
        site = Site.from_json(dict(used[-1].facts)) if "file" in used[-1].facts else standings[rank].site
        return replace(
            finding,
            code="DDP109",
            summary=f"A process that rank {rank} forked uses its process group{phrases.at(site)}: the threads that would serve it "
            "do not exist there, and it waits for ever.",
            where=((rank, site), *((r, s) for r, s in finding.where if r != rank)),
            remedy="Use collectives in the process that made the group alone; start workers with the 'spawn' context, and let "
            "them make a group of their own.",
        )
    return None


def logger(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP702: what blocks is the start of an experiment logger or a download, and more than one rank does it."""
    told = {r: _logger_frame(standings[r].record) for r in finding.culprits if r in standings}
    culprits = tuple(sorted(r for r, frame in told.items() if frame is not None))
    if not culprits:
        return None
    frame = told[culprits[0]]
    assert frame is not None
    site = next((f.site for f in reversed(frames_of(standings[culprits[0]].record)) if f.user), frame.site)
    return replace(
        finding,
        code="DDP702",
        culprits=culprits,
        summary=f"{phrases.ranks(culprits, True)} {phrases.verb(culprits, 'hangs', 'hang')} in {frame.function}(), the start of a logger "
        f"or a download{phrases.at(site)}, while {phrases.ranks(finding.waiting)} {phrases.verb(finding.waiting, 'waits', 'wait')}.",
        remedy="Start loggers and downloads on rank 0 alone (if rank == 0: ...; then dist.barrier()), or give each rank a run of its own.",
    )


def _logger_frame(record: RankRecord) -> Frame | None:
    users = 0
    for frame in reversed(frames_of(record)):
        # What the user's file is called says nothing, nor does a function far outside.
        users += frame.user
        if not frame.user and "/torch/distributed/" in frame.file:
            continue  # its c10d_logger.py starts nothing
        name = frame.function if frame.user else f"{frame.file.rsplit('/', 1)[-1]} {frame.function}"
        held = frame.locals.get("self", "") if frame.user else ""
        if users <= _NEAR and (_LOGGERS.search(name) or _LOGGERS.search(held)):
            return frame
        if not frame.user and re.search(
            r"/(wandb|mlflow|tensorboard|huggingface_hub|datasets|neptune|comet_ml|clearml)/", frame.file
        ):
            return frame
    return None
