"""The remedy in the terms of the framework whose function the ranks were recorded in.

A rank that waits in ``accelerator.wait_for_everyone()`` is in a barrier of torch, but its user never wrote one: the
frames between the user's line and torch name what was called, and this table what to change there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ddpnb.recording import phrases
from ddpnb.recording.facts.departures import jumped
from ddpnb.recording.facts.stacks import below_user, frames_at
from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.findings import Finding, Hint
from ddpnb.recording.recording import Recording
from ddpnb.recording.source.branches import candidates
from ddpnb.rules.rule import MISMATCHES


@dataclass(frozen=True, slots=True)
class FrameworkCall:
    """A function of a framework that calls a collective.

    ``written`` is the call as users write it, ``{}`` in it the function's name; ``remedy`` follows the words
    "is a collective: call it on all ranks.". ``deferred``, where the collective is not made in the user's call but later:
    how the line of the user's call looks.
    """

    file: re.Pattern[str]
    function: re.Pattern[str]
    written: str
    remedy: str = ""
    deferred: str = ""


def _call(file: str, function: str, written: str, remedy: str = "", deferred: str = "") -> FrameworkCall:
    return FrameworkCall(re.compile(file), re.compile(f"({function})\\Z"), written, remedy, deferred)


# Frames of decorators and context managers between the user's line and the function that it calls.
_WRAPPER = re.compile(r"wrapper|wrapped_func|inner|inner_func|decorate_context|__(enter|exit)__")
_LOG = "For a value that only rank 0 has: self.log(..., rank_zero_only=True), without sync_dist."
_WRITES = "Only rank 0 writes the file, which the framework sees to."
_TRAINER = r"/(lightning/pytorch|pytorch_lightning)"
_CALLS = (
    _call(_TRAINER + r"/core/module\.py\Z", "log|log_dict", "self.{}(..., sync_dist=True)", _LOG),
    _call(
        _TRAINER + r"/trainer/connectors/logger_connector/result\.py\Z",
        "compute",
        "self.log(..., sync_dist=True)",
        f"Its value is reduced later, at the end of the epoch. {_LOG}",
        deferred=r"\.log(_dict)?\(.*sync_dist\s*=\s*True",
    ),
    _call(_TRAINER + r"/core/module\.py\Z", "all_gather", "self.{}()"),
    _call(_TRAINER + r"/trainer/trainer\.py\Z", "save_checkpoint", "trainer.{}()", _WRITES),
    _call(_TRAINER + r"/trainer/trainer\.py\Z", "validate|test|predict", "trainer.{}()"),
    _call(_TRAINER + r"/strategies/\w+\.py\Z", "barrier|broadcast|reduce|all_reduce", "trainer.strategy.{}()"),
    _call(r"/(lightning/fabric|lightning_fabric)/fabric\.py\Z", "save", "fabric.{}()", _WRITES),
    _call(
        r"/(lightning/fabric|lightning_fabric)/fabric\.py\Z",
        "all_reduce|all_gather|barrier|broadcast|load|clip_gradients|rank_zero_first",
        "fabric.{}()",
        "Only what follows, such as printing, belongs under `if fabric.is_global_zero`.",
    ),
    _call(
        r"/torchmetrics/metric\.py\Z",
        "sync|_sync_dist|sync_context",
        "metric.compute()",
        "Log the result on rank 0; metric.compute() itself synchronises all ranks.",
    ),
    _call(r"/accelerate/accelerator\.py\Z", "save_state|load_state|get_state_dict", "accelerator.{}()", _WRITES),
    _call(
        r"/accelerate/accelerator\.py\Z",
        "wait_for_everyone|gather|gather_for_metrics|reduce|pad_across_processes|main_process_first|local_main_process_first",
        "accelerator.{}()",
        "Only what follows, such as printing or saving, belongs under `if accelerator.is_main_process`.",
    ),
    _call(
        r"/accelerate/utils/operations\.py\Z",
        "gather|gather_object|reduce|broadcast|broadcast_object_list",
        "accelerate.utils.{}()",
    ),
    _call(
        r"/accelerate/data_loader\.py\Z",
        "__iter__|_fetch_batches",
        "a loop over a DataLoader that accelerator.prepare() returned",
        "Loop over it on all ranks, or do not prepare a DataLoader that one rank alone uses.",
    ),
    _call(
        r"/transformers/trainer\.py\Z",
        "evaluate|predict|save_model|train",
        "trainer.{}()",
        "The Trainer prints and writes on the main process only by itself.",
    ),
    _call(r"/timm/utils/distributed\.py\Z", "reduce_tensor|distribute_bn", "timm.utils.{}()"),
    _call(
        r"/torch/distributed/checkpoint/state_dict_(saver|loader)\.py\Z",
        "save|async_save|load",
        "dcp.{}()",
        "Each rank writes or reads its own part.",
    ),
    _call(
        r"/torch/distributed/checkpoint/state_dict\.py\Z",
        "[gs]et_(model_|optimizer_)?state_dict",
        "{}()",
        "Write the file on one rank.",
    ),
    _call(r"/torch/distributed/tensor/_api\.py\Z", "full_tensor|redistribute", "{}()", "Use its result on one rank."),
)
# What the waiting ranks train with -> how it keeps the numbers of batches equal.
_EVEN = (
    (
        re.compile(_TRAINER + "/"),
        "With Lightning: let the Trainer insert a DistributedSampler (use_distributed_sampler=True), or set "
        "limit_train_batches to a number that all ranks have.",
    ),
    (
        re.compile(r"/transformers/trainer\.py\Z"),
        "With the Trainer of transformers: a data set with a length, or accelerator_config={'dispatch_batches': True}.",
    ),
    (
        re.compile(r"/accelerate/"),
        "With accelerate: pass the DataLoader to accelerator.prepare() (even_batches=True), or train under "
        "accelerator.join_uneven_inputs([model]).",
    ),
)
_MISSING = ("DDP301", "DDP605")


_SHOWN = 4  # ranks


def in_terms(recording: Recording, standings: Mapping[int, Standing], finding: Finding) -> Finding:
    """The finding with the framework's own calls in evidence and remedy; itself where no framework was recorded.

    Args:
        recording: holds the sources.
        standings: where each rank is.
        finding: why ranks failed or are blocked.
    """
    if finding.code == "DDP308":
        return _even(recording, standings, finding)
    if finding.code not in (*_MISSING, *MISMATCHES):
        return finding
    ranks = [rank for rank in sorted(finding.concerned) if rank in standings]
    inside = {rank: found for rank in ranks if (found := framework_call(standings[rank])) is not None}
    if len({written for written, _ in inside.values()}) == 1 and len(inside) == len(ranks):
        return finding  # all are in the same function: that it is a collective explains nothing
    if finding.code in _MISSING:  # one side is elsewhere
        extra = finding.type.extra_call
        inside = {rank: found for rank, found in inside.items() if (rank in finding.culprits) == extra}
    if not inside:
        return finding
    says = dict.fromkeys(
        f"Rank {rank} is inside {written}{phrases.at(standings[rank].site)}." for rank, (written, _) in inside.items()
    )
    # In a tie either side may be wrong: perhaps all ranks call it, but not all at this point.
    open_question = bool(finding.sides) or finding.code in MISMATCHES
    what = "all ranks must call it, in the same order" if open_question else "call it on all ranks"
    remedies = dict.fromkeys(
        f"{_capital(written)} is a collective: {what}. {call.remedy}".rstrip() for written, call in inside.values()
    )
    hints = (_deferred(recording, call) for _, call in inside.values() if call.deferred)
    return replace(
        finding,
        evidence=(*finding.evidence, *list(says)[:_SHOWN]),
        remedy=" ".join([finding.remedy] * open_question + list(remedies)),
        hint=finding.hint or next((hint for hint in hints if hint is not None), None),
    )


def _capital(written: str) -> str:
    """As the first words of a sentence; code stays as it is."""
    return written[0].upper() + written[1:] if written.startswith("a ") else written


def framework_call(standing: Standing) -> tuple[str, FrameworkCall] | None:
    """What the innermost line of the user's code calls, as users write it; or what a framework makes up for later."""
    inside = [frame for frame in below_user(frames_at(standing)) if not _WRAPPER.fullmatch(frame.function)]
    for number, frame in enumerate(inside):
        call = _call_of(frame.function, frame.file, number > 0)
        if call is not None:
            return call.written.format(frame.function), call
    return None


@lru_cache(maxsize=1024)
def _call_of(function: str, file: str, inner: bool) -> FrameworkCall | None:
    """The row of a function; of an ``inner`` one, which others of libraries have called, only if it is deferred."""
    possible = (call for call in _CALLS if not inner or call.deferred)
    return next((call for call in possible if call.function.match(function) and call.file.search(file)), None)


def _even(recording: Recording, standings: Mapping[int, Standing], finding: Finding) -> Finding:
    """Uneven iterations: what the framework has against numbers of batches that differ."""
    if jumped(recording, finding.culprits, finding.waiting):
        return finding  # the user's own code left the loop
    frames = [frame for rank in finding.waiting if rank in standings for frame in frames_at(standings[rank])]
    says = next((text for file, text in _EVEN if any(not f.user and file.search(f.file) for f in frames)), "")
    return replace(finding, remedy=f"{finding.remedy} {says}") if says else finding


def _deferred(recording: Recording, call: FrameworkCall) -> Hint | None:
    """A condition of the user's around a call whose collective is made later; None unless there is exactly one."""
    found = [
        Hint(file, at, f"{text} decides which ranks reach {call.written} in line {number}")
        for file, source in recording.sources.items()
        for number, line in enumerate(source.splitlines(), 1)
        if re.search(call.deferred, line)
        for at, text in candidates(source, number)
    ]
    return found[0] if len(found) == 1 else None
