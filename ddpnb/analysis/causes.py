"""The cause behind a stop or a failure: what the graph of waits proves, told as what the script did.

The wait-for graph says that a rank will never come. Whether that is a forgotten call, a model that
one rank ran alone, a logger that every rank started or a child that used the group, is told by the
frames, the samples and the facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ddpnb.analysis import aftermath, phrases, settings
from ddpnb.analysis.messages.explain import explain
from ddpnb.analysis.messages.explained import Explained, blamed
from ddpnb.analysis.silent import replicas, traffic, wrapping
from ddpnb.analysis.silent.drift import models_of
from ddpnb.analysis.waiting import alone, workers
from ddpnb.analysis.waiting.standing import Standing, where
from ddpnb.model.calls import NO_SITE, Site
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.model.stacks import Frame, Stack

_DDP = ("/torch/nn/parallel/distributed.py",)
_SHARDED = (
    "/torch/distributed/checkpoint/",
    "/torch/distributed/optim/",
    "/torch/distributed/fsdp/",
    "/torch/distributed/tensor/",
)
_SHARDED_CALLS = re.compile(r"state_dict|full_tensor|redistribute|gather|consolidate")
_LOGGERS = re.compile(
    r"wandb|tensorboard|summarywriter|mlflow|neptune|comet|clearml|swanlab|trackio|huggingface|hf_|snapshot_download"
    r"|(?<![a-z])(aim|hub)(?![a-z])|from_pretrained|load_dataset|download|logger"
    r"|(init|start|create|set_?up|new|open)\w{0,20}(experiment|tracker)",
    re.IGNORECASE,
)
_NEAR = 3  # of the user's frames
_MISMATCH = ("DDP302", "DDP303", "DDP304", "DDP305")


def refine(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding:
    """The same stop or failure under its most telling name; ``finding`` itself when there is none."""
    for rule in _RULES.get(finding.code, ()):
        better = rule(recording, standings, finding)
        if better is not None:
            return better
    return finding


# -- mismatches


def _other_model(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """The ranks disagree while they wrap their models: because the models do."""
    concerned = [recording.ranks[r] for r in (*finding.culprits, *finding.waiting) if r in recording.ranks]
    # Seen while a model is being wrapped, or when a wrapper has refused what it was given.
    wrapping_now = any(p.name == "model wrapped" and p.state != "done" for record in concerned for p in record.phases)
    if not wrapping_now:
        return None
    for models in reversed(models_of(recording).values()):
        better = wrapping.models_differ({rank: m for rank, m in models.items() if m.wrapper})
        if better is not None:
            return replace(better, evidence=(*better.evidence, *finding.evidence[:2]), collective=finding.collective)
    return None


def _other_hook(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = wrapping.comm_hooks_differ(recording)
    return (
        None
        if better is None
        else replace(better, evidence=(*better.evidence, *finding.evidence[:2]), collective=finding.collective)
    )


def _two_threads(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = traffic.concurrent_use(recording)
    return (
        None
        if better is None
        else replace(better, severity="error", evidence=(*better.evidence, *finding.evidence[:2]))
    )


def _in_another_thread(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP310: the call that others wait in is about to be made by another thread of the rank."""
    awaited = {(s.file, s.function) for r in finding.waiting if r in standings for s in [standings[r].site]}
    found: dict[int, Site] = {}
    for rank in finding.culprits:
        for stack in recording.ranks[rank].stacks if rank in recording.ranks else ():
            frame = next((one for one in reversed(stack.frames) if one.user), None)
            if frame is not None and not stack.main and (frame.file, frame.function) in awaited:
                found[rank] = Site(frame.file, frame.line, frame.function)
    if not found or set(found) != set(finding.culprits):
        return None
    return replace(
        finding,
        code="DDP310",
        summary=f"Two threads of {phrases.ranks(found)} use one group: which call comes first is left to chance, "
        f"and {phrases.ranks(finding.waiting)} {phrases.verb(finding.waiting, 'makes', 'make')} them in one order.",
        evidence=(
            *(f"Another thread of rank {rank} is at {site} in {site.function}." for rank, site in found.items()),
            *finding.evidence,
        ),
        remedy="Give each thread a group of its own (dist.new_group, made on all ranks in the same order), or let one "
        "thread make all calls.",
    )


def _explained(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """What torch raised, in the user's terms."""
    told: dict[int, Explained] = {}
    for rank in finding.culprits:
        ending = recording.ranks[rank].ending
        if ending is None or not ending.exception:
            continue
        one = explain(
            ending.message,
            ending.exception,
            names=_trained(recording.ranks[rank]),
            frames=ending.frames,
            sources=recording.sources,
            traceback=ending.traceback,
        )
        if one is not None:
            told[rank] = one
    if not told:
        return None
    first = told[min(told)]
    named = blamed(told, recording.world_size)
    missing = tuple(sorted({rank for one in told.values() for rank in one.missing}))
    culprits = tuple(r for r in (named or missing) if r in recording.ranks) or finding.culprits
    waiting = tuple(r for r in sorted({*finding.waiting, *finding.culprits}) if r not in culprits)
    places = dict(finding.where)
    for rank in culprits:
        if rank not in places and rank in standings and standings[rank].site != NO_SITE:
            places[rank] = standings[rank].site
    order = [*culprits, *waiting]
    return Finding(
        first.code,
        f"{phrases.ranks(culprits, True)}: {first.summary}",
        culprits,
        waiting,
        finding.collective,
        tuple((rank, places[rank]) for rank in order if rank in places),
        (*first.evidence, *finding.evidence),
        first.remedy or finding.remedy,
        tensors=first.tensors,
    )


def _trained(record: RankRecord) -> tuple[str, ...]:
    """The parameters of the model that was wrapped last, as the wrapper counts them."""
    models = [model for model in record.models if model.wrapper]
    return tuple(t.name for t in models[-1].parameters if t.trains and not t.ignored) if models else ()


def _set_up_wrongly(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """What failed is explained by how the model of these very ranks was made."""
    endings = [recording.ranks[rank].ending for rank in finding.culprits if rank in recording.ranks]
    if any(e and e.frames and e.frames[-1].user and e.exception != "RuntimeError" for e in endings):
        return None  # the script's own statement raised it
    for better in wrapping.find(recording):
        if better.severity == "error" and set(finding.culprits) <= set(better.culprits):
            waiting = tuple(rank for rank in finding.waiting if rank not in better.culprits)
            return replace(better, waiting=waiting, evidence=(*better.evidence, *finding.evidence[:2]))
    return None


# -- calls that never come


def _not_synchronised(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """Others wait in backward for gradients that a rank does not send: bypassed, under no_sync, unused."""
    if (
        not any(_inside(standings[r], ("backward",)) for r in finding.waiting if r in standings)
        and finding.code != "DDP308"
    ):
        return None
    for better in replicas.find(recording):
        if better.code in ("DDP407", "DDP408"):
            return replace(better, evidence=(*better.evidence, *finding.evidence[:2]), collective=finding.collective)
    return None


def _lone_forward(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = alone.lone_forward(recording)
    return None if better is None else replace(better, evidence=(*better.evidence, *finding.evidence[:2]))


def _alone_in_model(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP411: the wait is that of a wrapped model's forward or backward, which the others never began."""
    waiting = [r for r in finding.waiting if r in standings and _in_wrapper(standings[r])]
    if not waiting or (len(waiting) > len(finding.culprits) and len(waiting) > 1):
        return None
    turns = {rank: _forwards(recording.ranks[rank]) for rank in recording.ranks}
    # From a line at which the others have been too they only went on for longer.
    been = {call.site for c in finding.culprits if c in recording.ranks for call in recording.ranks[c].calls}
    ahead = [
        rank
        for rank in waiting
        if turns[rank] > max((turns[c] for c in finding.culprits if c in turns), default=0)
        and standings[rank].site not in been
    ]
    evaluating = [rank for rank in waiting if not turns[rank] or rank in ahead or _inside(standings[rank], _EVALUATION)]
    if not evaluating:
        return None
    lone = tuple(waiting)
    others = tuple(r for r in finding.culprits if r in standings)
    call = finding.collective
    return Finding(
        "DDP411",
        f"{phrases.ranks(lone, True)} {phrases.verb(lone, 'runs', 'run')} the wrapped model alone: its {call.op if call else 'collective'} "
        f"waits for {phrases.ranks(others)}, which never run it.",
        lone,
        others,
        call,
        where(standings, [*lone, *others]),
        (
            *(f"Rank {rank} is inside the wrapper{phrases.at(standings[rank].site)}." for rank in lone[:4]),
            *finding.evidence,
        ),
        alone.REMEDY,
    )


_EVALUATION = ("eval", "valid", "test", "predict", "infer", "visual", "sample", "log")


def _forwards(record: RankRecord) -> int:
    return record.forwards or max((sample.turn for sample in record.samples if sample.kind == "forward"), default=0)


def _state_of_one(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP605: a sharded state is gathered on some ranks only."""
    concerned = (*finding.culprits, *finding.waiting)
    alone = tuple(sorted(r for r in concerned if r in standings and _gathers(standings[r])))
    others = tuple(sorted(r for r in concerned if r not in alone))
    if not alone or not others:
        return None
    return replace(
        finding,
        code="DDP605",
        culprits=others,
        waiting=alone,
        summary=f"{phrases.ranks(alone, True)} {phrases.verb(alone, 'gathers', 'gather')} a sharded state"
        f"{phrases.at(standings[alone[0]].site)}; {phrases.ranks(others)} never {phrases.verb(others, 'takes', 'take')} part.",
        where=where(standings, [*others, *alone]),
        remedy="Gathering a sharded state is a collective: call it on all ranks, and write the file on one.",
    )


def _gathers(standing: Standing) -> bool:
    frames = _frames(standing)
    return any(
        not frame.user and any(part in frame.file for part in _SHARDED) and _SHARDED_CALLS.search(frame.function)
        for frame in frames
    )


# -- ranks that stand elsewhere


def _forked(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
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


def _logger(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP702: what blocks is the start of an experiment logger or a download, and more than one rank does it."""
    told = {r: _logger_frame(standings[r].record) for r in finding.culprits if r in standings}
    culprits = tuple(sorted(r for r, frame in told.items() if frame is not None))
    if not culprits:
        return None
    frame = told[culprits[0]]
    assert frame is not None
    site = next((f.site for f in reversed(_stack_frames(standings[culprits[0]].record)) if f.user), frame.site)
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
    for frame in reversed(_stack_frames(record)):
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


def _quiet_exit(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP701: a process ended itself with status 0 although others needed it."""
    quiet = [r for r in finding.culprits if aftermath.left_quietly(recording.ranks[r])]
    if not quiet:
        return None
    return replace(
        finding,
        code="DDP701",
        summary=f"{phrases.ranks(quiet, True)} left in the middle of the run with exit status 0, as if all had gone well.",
        remedy="Leave with another status when training failed: no os._exit(0) or sys.exit(0) in a finally.",
    )


def _short_timeout(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP317: a time-out that was set shorter than what a rank which computes needs."""
    endings = [r.ending for r in recording.ranks.values() if r.ending is not None]
    told = [m for e in endings if (m := _TIMED_OUT.search(e.message[:20_000]))]
    if not told:
        return None
    seconds = int(told[0][1]) / 1000
    made = {
        rank: [
            p
            for p in record.phases
            if p.name in ("new_group", "init_process_group") and p.facts.get("timeout_s") == seconds
        ]
        for rank, record in recording.ranks.items()
    }
    culprits = tuple(rank for rank, phases in sorted(made.items()) if phases)
    if not culprits or seconds > 60:
        return None
    return replace(
        finding,
        code="DDP317",
        culprits=culprits,
        waiting=(),
        summary=f"The time-out of {seconds:g} s is shorter than what the ranks need: it fired while a rank was still at work.",
        where=tuple((r, Site.from_json(dict(made[r][-1].facts))) for r in culprits if "file" in made[r][-1].facts),
        remedy="Give the group the time of its slowest legal wait, or do the long work on all ranks, or outside of the wait.",
    )


def _too_soon(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP317: others gave up before anybody could say that a rank is stuck."""
    better = _short_timeout(recording, standings, finding)
    told = [ending.message for record in recording.ranks.values() if (ending := record.ending) is not None]
    fired = [int(match[1]) for message in told if (match := _TIMED_OUT.search(message[:20_000]))]
    locked = any("lock" in r.process.waits_on for rank in finding.culprits if (r := recording.ranks.get(rank)))
    if better is None or max(fired) >= 1000 * _PATIENCE_S or locked:  # a lock is no work that needs its time
        return None
    return replace(better, evidence=(*finding.evidence, *better.evidence))


_PATIENCE_S = 10.0  # the default patience
_TIMED_OUT = re.compile(r"[Tt]imed out (?:waiting|after) (\d{1,12})ms")


def _killed_by_kernel(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP706: a SIGKILL together with a kill of the kernel's for want of memory."""
    killed = [
        r for r in finding.culprits if (e := recording.ranks[r].ending) is not None and e.signal_name == "SIGKILL"
    ]
    count = workers.kills_for_memory(recording)
    if not killed or not count:
        return None
    return replace(
        finding,
        code="DDP706",
        summary=f"{phrases.ranks(killed, True)} {phrases.verb(killed, 'was', 'were')} killed by the kernel: the machine (or the container) "
        "ran out of memory.",
        evidence=(
            f"The kernel counts {count} more kill{'s' * (count > 1)} for want of memory than at the start.",
            *finding.evidence,
        ),
        remedy="Use less host memory: fewer data loader workers, smaller prefetch, no caching of the data set per rank; or raise the limit.",
    )


# -- start-up


def _same_rank_twice(recording: Recording, standings: dict[int, Standing], finding: Finding) -> Finding | None:
    """DDP103: two processes ask for one rank."""
    phases = settings.inits(recording)
    claimed: dict[str, list[int]] = {}
    for rank, phase in phases.items():
        claimed.setdefault(str(phase.facts.get("rank")), []).append(rank)
    double = {rank: ranks for rank, ranks in claimed.items() if len(ranks) > 1 and rank not in ("None", "")}
    if not double:
        return None
    number, ranks = next(iter(sorted(double.items())))
    culprits = tuple(sorted(rank for one, claimants in double.items() for rank in claimants if str(rank) != one))
    waiting = tuple(sorted(set(phases) - set(culprits)))
    told = {str(phases[rank].facts.get("rank")): None for rank in culprits if rank in phases}
    return Finding(
        "DDP103",
        f"{len(ranks)} processes claim rank {number}: {phrases.ranks(culprits)} {phrases.verb(culprits, 'calls', 'call')} "
        f"init_process_group with rank={' and '.join(sorted(told)[:4])}.",
        culprits,
        waiting,
        None,
        tuple((r, Site.from_json(dict(phases[r].facts))) for r in (*culprits, *waiting) if "file" in phases[r].facts),
        tuple(f"Rank {rank} joined as rank {phases[rank].facts.get('rank')}." for rank in sorted(phases)[:8]),
        "Take the rank from the launcher (RANK in the environment), do not compute it.",
    )


def _other_backend(recording: Recording, _: dict[int, Standing], finding: Finding) -> Finding | None:
    better = next((f for f in settings.find(recording) if f.code == "DDP106"), None)
    return None if better is None else replace(better, evidence=(*better.evidence, *finding.evidence[:2]))


# -- frames


def _stack_frames(record: RankRecord) -> tuple[Frame, ...]:
    stack: Stack | None = record.main_stack
    return stack.frames if stack is not None else ()


def _frames(standing: Standing) -> tuple[Frame, ...]:
    frames = _stack_frames(standing.record)
    return frames or (standing.record.ending.frames if standing.record.ending is not None else ())


def _in_wrapper(standing: Standing) -> bool:
    return any(any(part in frame.file for part in _DDP) for frame in _frames(standing)) or _inside(
        standing, ("backward",)
    )


def _inside(standing: Standing, words: Iterable[str]) -> bool:
    """Whether a frame of the user's, or one of torch's, has such a word in its function's name."""
    return any(any(word in frame.function.lower() for word in words) for frame in _frames(standing))


_WAITS = (_not_synchronised, _state_of_one, _lone_forward, _alone_in_model)
_RULES = {
    **dict.fromkeys(
        _MISMATCH,
        (_other_model, _set_up_wrongly, _other_hook, _two_threads, _in_another_thread, _state_of_one, _lone_forward),
    ),
    "DDP301": (_other_model, _two_threads, _in_another_thread, *_WAITS),
    "DDP308": (_not_synchronised, _lone_forward),
    "DDP102": (_same_rank_twice, _other_backend),
    "DDP104": (_same_rank_twice, _other_backend),
    "DDP108": (_other_backend,),
    "DDP311": (_killed_by_kernel, _quiet_exit),
    "DDP312": (_same_rank_twice, _other_model, _short_timeout, _explained, _set_up_wrongly),
    "DDP313": (_forked, _too_soon, workers.stalled_worker, _logger),
    "DDP314": (_forked,),
}
