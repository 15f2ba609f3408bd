"""Findings and the diagnosis, and their public JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ddpnb.model.calls import Call, Site

Severity = Literal["error", "warning", "note"]
Outcome = Literal["ok", "hang", "crash", "divergence", "interrupted"]

NAMES = {
    "DDP101": "bad-environment",
    "DDP102": "world-incomplete",
    "DDP103": "duplicate-rank",
    "DDP104": "rendezvous-unreachable",
    "DDP105": "stale-store",
    "DDP106": "backend-mismatch",
    "DDP107": "version-mismatch",
    "DDP108": "subgroup-mismatch",
    "DDP109": "used-after-fork",
    "DDP110": "wrong-interface",
    "DDP201": "shared-device",
    "DDP202": "wrong-device",
    "DDP203": "host-tensor-on-nccl",
    "DDP204": "bad-device-ids",
    "DDP205": "device-memory",
    "DDP206": "device-fault",
    "DDP207": "slow-link",
    "DDP208": "visible-devices",
    "DDP301": "collective-missing",
    "DDP302": "op-mismatch",
    "DDP303": "shape-mismatch",
    "DDP304": "dtype-mismatch",
    "DDP305": "argument-mismatch",
    "DDP306": "group-order",
    "DDP307": "p2p-deadlock",
    "DDP308": "uneven-iterations",
    "DDP309": "order-swap",
    "DDP310": "concurrent-use",
    "DDP311": "rank-dead",
    "DDP312": "rank-raised",
    "DDP313": "blocked-elsewhere",
    "DDP314": "rank-frozen",
    "DDP315": "straggler",
    "DDP316": "work-not-waited",
    "DDP317": "timeout-setting",
    "DDP401": "unused-parameters",
    "DDP402": "rank-dependent-branch",
    "DDP403": "model-differs",
    "DDP404": "parameter-order",
    "DDP405": "replica-drift",
    "DDP406": "buffer-drift",
    "DDP407": "forward-bypassed",
    "DDP408": "sync-skipped",
    "DDP409": "scaling-differs",
    "DDP410": "optimizer-differs",
    "DDP411": "rank-zero-forward",
    "DDP412": "batchnorm-sync",
    "DDP413": "hidden-attribute",
    "DDP414": "nan-on-rank",
    "DDP415": "graph-changed",
    "DDP416": "hook-differs",
    "DDP501": "same-data",
    "DDP502": "epoch-not-set",
    "DDP503": "dataset-differs",
    "DDP504": "uneven-shards",
    "DDP505": "worker-died",
    "DDP506": "shared-memory-low",
    "DDP507": "worker-stalled",
    "DDP508": "bad-sample",
    "DDP601": "partial-load",
    "DDP602": "prefix-mismatch",
    "DDP603": "checkpoint-race",
    "DDP604": "load-device",
    "DDP605": "state-on-one-rank",
    "DDP606": "rng-not-restored",
    "DDP701": "exit-code-masked",
    "DDP702": "logger-on-all-ranks",
    "DDP703": "deprecated-variable",
    "DDP704": "cpu-oversubscribed",
    "DDP705": "host-exhausted",
    "DDP706": "host-memory",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem (or note): the ranks at fault, where, and what to change.

    ``where`` gives, for culprits and for waiting ranks, the innermost line of the user's code: only places that
    were observed (call sites, stack frames, construction sites), never a line inferred from source text. Where
    ranks differ and no recorded fact tells which of them is at fault, ``culprits`` is empty and ``sides`` lists the
    groups of ranks.
    """

    code: str
    summary: str
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    collective: Call | None = None
    where: tuple[tuple[int, Site], ...] = ()
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    severity: Severity = "error"
    tensors: tuple[str, ...] = ()
    sides: tuple[tuple[int, ...], ...] = ()

    @property
    def concerned(self) -> frozenset[int]:
        """All ranks that the finding names."""
        return frozenset((*self.culprits, *self.waiting, *(rank for side in self.sides for rank in side)))

    @property
    def name(self) -> str:
        return NAMES.get(self.code, "unknown")

    def to_json(self) -> dict[str, Any]:
        call = self.collective
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "summary": self.summary,
            "culprits": list(self.culprits),
            "sides": [list(side) for side in self.sides],
            "waiting": list(self.waiting),
            "collective": None
            if call is None
            else {
                "op": call.op,
                "group": str(call.group),
                "seq": call.seq,
                "shapes": [list(shape) for shape in call.signature.shapes],
                "dtypes": list(call.signature.dtypes),
            },
            "where": [
                {"rank": rank, "file": site.file, "line": site.line, "function": site.function}
                for rank, site in self.where
            ],
            "tensors": list(self.tensors),
            "evidence": list(self.evidence),
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings, root cause first. ``settled``: waiting longer does not change it."""

    outcome: Outcome = "ok"
    findings: tuple[Finding, ...] = ()
    settled: bool = False
    world_size: int = 0
    exit_codes: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    timing: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def to_json(self) -> dict[str, Any]:
        """The verdict, schema 1 (the public contract: add, never rename)."""
        return {
            "schema": 1,
            "outcome": self.outcome,
            "settled": self.settled,
            "world_size": self.world_size,
            "exit_codes": {str(rank): code for rank, code in sorted(self.exit_codes.items())},
            "findings": [finding.to_json() for finding in self.findings],
            "timing": {name: round(value, 4) for name, value in self.timing.items()},
        }
