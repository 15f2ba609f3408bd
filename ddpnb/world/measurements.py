"""What the doctor asks of the ranks after start-up: their versions, and how long collectives take."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ddpnb.ranks.rank_processes import Answer
from ddpnb.recorder import entries
from ddpnb.recording import phrases
from ddpnb.recording.checks import Check, CollectiveTime
from ddpnb.texts import shortened
from ddpnb.world import nccl_status
from ddpnb.world.host import software
from ddpnb.world.ranks import OwnRanks
from ddpnb.world.startup import Startup

_MEASURE_S = 30.0  # that measuring may take: ten times as long as it should
_REST_S = 2.0  # for the other ranks after one has failed
_TICK_S = 0.02


def take(ranks: OwnRanks, startup: Startup, known: Sequence[Check]) -> tuple[list[Check], tuple[CollectiveTime, ...]]:
    """The versions of the ranks and which GPUs reach each other, as checks, and the times of collectives.

    Args:
        ranks: with a process group.
        startup: that has made it.
        known: the checks of the machine.
    """
    answers = {
        rank: ranks.engines.call(rank, entries.measure, {"log": startup._logs[rank], "environment": {}})
        for rank in range(ranks.size)
    }
    _wait(ranks, answers)
    found: dict[int, Mapping[str, Any]] = {}
    why = ""
    for rank, answer in answers.items():
        try:
            if answer.ready():
                found[rank] = answer.get()
                why = why or found[rank]["error"]
        except Exception as error:  # whatever the rank's process raised
            why = why or shortened(f"{type(error).__name__}: {error}", 400)
    driver = next((str(one.details.get("cuda", "")) for one in known if one.name == "driver"), "")
    checks = software.of_ranks({rank: one["software"] for rank, one in found.items()}, driver)
    peers = next((one["peers"] for one in found.values() if one["peers"]), {})
    checks += [_peers(peers)] if peers else []
    if ranks.plan.backend == "nccl":
        checks += nccl_status.checks(nccl_status.ask(map(ranks.processes.pid, range(ranks.size))), diagnose=True)
    silent = [rank for rank in answers if rank not in found]
    if why or silent:
        told = why or f"{phrases.ranks(silent)} did not end within {_MEASURE_S:g} s"
        todo = "Collectives of up to 64 MiB were tried after start-up: see the logs of the ranks (--bundle)."
        checks.append(Check("collectives", "warning", told, section="timings", todo=todo))
        return checks, ()
    series = zip(*(one["collectives"] for one in found.values()), strict=True)
    return checks, tuple(
        CollectiveTime(
            one[0]["op"], one[0]["size"], {rank: tuple(it["seconds"]) for rank, it in zip(found, one, strict=True)}
        )
        for one in series
    )


def _wait(ranks: OwnRanks, answers: Mapping[int, Answer]) -> None:
    """Wait for all answers; after a rank has failed or died, the others wait for it in vain and get a moment only."""
    deadline = time.monotonic() + _MEASURE_S
    failed = False
    while time.monotonic() < deadline and not all(answer.ready() for answer in answers.values()):
        lost = len(ranks.alive()) < ranks.size or any(
            answer.ready() and (not answer.successful() or answer.get()["error"]) for answer in answers.values()
        )
        if lost and not failed:
            failed, deadline = True, min(deadline, time.monotonic() + _REST_S)
        time.sleep(_TICK_S)


def _peers(peers: Mapping[str, Sequence[int]]) -> Check:
    """Which GPUs access each other's memory directly (``torch.cuda.can_device_access_peer``)."""
    apart = [
        f"{one}-{other}" for one in peers for other in peers if int(one) < int(other) and int(other) not in peers[one]
    ]
    details = {"peers": dict(peers)}
    if not apart:
        return Check("peer access", "ok", f"between all {len(peers)} GPUs", section="GPUs", details=details)
    told = f"none between {', '.join(apart[:8])}{f' and {len(apart) - 8} more pairs' if len(apart) > 8 else ''}"
    todo = "NCCL takes shared memory instead: slower. In virtual machines look at ACS and IOMMU."
    return Check("peer access", "warning", told, "DDP207", "GPUs", todo, details)
