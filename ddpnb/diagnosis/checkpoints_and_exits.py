"""Findings about what a script did around training: resuming, saving, exit status."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from ddpnb.diagnosis.hangs.rank_state import last_site
from ddpnb.lint.unwaited import Unwaited, unwaited
from ddpnb.model import phrases
from ddpnb.model.calls import NO_SITE, CallState, Site
from ddpnb.model.events.data import DataLoop, SamplerPass
from ddpnb.model.events.models import AttributeOnWrapper, CheckpointRead, CheckpointSaved, RngRestored, StateLoaded
from ddpnb.model.findings import Certainty, Finding, FindingType, Hint, Severity
from ddpnb.model.recording import RankRecord, Recording
from ddpnb.source.branches import guards_of

WORK_NOT_WAITED = FindingType("DDP316", "work-not-waited", once_per_line=True)
HIDDEN_ATTRIBUTE = FindingType("DDP413", "hidden-attribute")
PREFIX_MISMATCH = FindingType("DDP602", "prefix-mismatch")
CHECKPOINT_RACE = FindingType("DDP603", "checkpoint-race", severity="warning")
RNG_NOT_RESTORED = FindingType("DDP606", "rng-not-restored", severity="warning")
EXIT_CODE_MASKED = FindingType("DDP701", "exit-code-masked")

_RNG = re.compile(r"rng|random|generator", re.IGNORECASE)
_POSITION = re.compile(r"batch|iter|position|consumed|samples_seen|offset", re.IGNORECASE)


def find(recording: Recording) -> list[Finding]:
    """The findings from checkpoints, from sources and from the end of the output."""
    rules = (
        masked_failure,
        _left_by_force,
        _nothing_loaded,
        _not_waited,
        _resumed_without,
        _one_file,
        _hidden_attribute,
    )
    return [finding for rule in rules if (finding := rule(recording)) is not None]


def _finding(
    kind: FindingType,
    summary: str,
    places: dict[int, Site],
    evidence: list[str],
    remedy: str,
    severity: Severity | None = None,
    certainty: Certainty = "proven",
    hint: Hint | None = None,
) -> Finding:
    ranks = tuple(sorted(places))
    where = tuple((rank, places[rank]) for rank in ranks if places[rank] != NO_SITE)
    return Finding(
        kind,
        summary,
        ranks,
        (),
        None,
        where,
        tuple(evidence),
        remedy,
        severity or kind.severity,
        certainty=certainty,
        hint=hint,
    )


# -- DDP701

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_OTHERWHERE = re.compile(r"^(Exception in thread|Process \w+-\d+:)", re.MULTILINE)
_FRAME = re.compile(r'^ {1,8}File "(.{1,400})", line (\d{1,7}), in (.{1,200})$', re.MULTILINE)
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python\d|ddpnb/recorder/)|^<")


def masked_failure(recording: Recording) -> Finding | None:
    """DDP701: a rank exits with status 0 right after printing a traceback."""
    places: dict[int, Site] = {}
    last: dict[int, str] = {}
    for rank, record in recording.ranks.items():
        if record.ending is None or not record.ending.well or record.ending.how == "died":
            continue
        output = record.output.replace("\r", "")
        starts = [match.start() for match in _TRACEBACK.finditer(output)]
        if not starts:
            continue
        told = output[starts[-1] :].splitlines()
        end = next((n for n, line in enumerate(told[1:], 1) if line and not line.startswith(" ")), len(told) - 1)
        after = [line for line in told[end + 1 :] if line.strip()]
        if not _OTHERWHERE.search(output[max(0, starts[-1] - 200) : starts[-1]]) and len(after) > 1:
            continue  # the script continued after it
        frames = [m for m in _FRAME.finditer("\n".join(told[: end + 1])) if not _LIBRARY.search(m[1])]
        places[rank] = Site(frames[-1][1], int(frames[-1][2]), frames[-1][3]) if frames else NO_SITE
        last[rank] = told[end][:200] if told else ""
    if not places:
        return None
    ranks = tuple(sorted(places))
    return _finding(
        EXIT_CODE_MASKED,
        f"{phrases.ranks(ranks, True)} failed but exited with status 0, after "
        f"{last[ranks[0]].split(':')[0] or 'a traceback'}.",
        places,
        [f"Rank {rank} exited with status 0; the last error that it printed: {last[rank]}" for rank in ranks[:8]],
        "Let the exception end the process (or call sys.exit(1) after printing it); join threads and child processes and "
        "check how they ended. A launcher detects a failure by the exit status only.",
        certainty="likely",
    )


def _left_by_force(recording: Recording) -> Finding | None:
    """DDP701: all processes exit with status 0, some of them inside a call that the others did not reach."""
    if not recording.ranks or not all(left_quietly(record) for record in recording.ranks.values()):
        return None
    last = {rank: calls[-1] for rank, r in recording.ranks.items() if (calls := [c for c in r.calls if c.seq])}
    lost = {rank: call for rank, call in sorted(last.items()) if call.state.name != "COMPLETED"}
    reached = max((call.seq for call in lost.values()), default=0)
    first = [rank for rank, call in sorted(last.items()) if call.seq < reached]
    if not first:
        return None
    return _finding(
        EXIT_CODE_MASKED,
        f"{phrases.ranks(first, True)} exited with status 0 in the middle of the run.",
        {rank: last_site(recording.ranks[rank]) for rank in first},
        [f"Rank {rank} was in {call.title} then, and exited with status 0 too." for rank, call in lost.items()][:8],
        "Exit with a non-zero status when training failed: no os._exit(0) or sys.exit(0) in a finally.",
    )


# -- DDP602


def _nothing_loaded(recording: Recording) -> Finding | None:
    """DDP602: strict=False hid that no key of a state dict matches the model."""
    places: dict[int, StateLoaded] = {}
    for rank, record in recording.ranks.items():
        for load in record.events(StateLoaded):
            if load.matched == 0 and load.given:
                places.setdefault(rank, load)
    if not places:
        return None
    named = ", ".join(next(iter(places.values())).keys[:3])
    return _finding(
        PREFIX_MISMATCH,
        "A state dict was loaded with strict=False, but none of its keys match the model's: nothing was loaded.",
        {rank: load.site for rank, load in places.items()},
        [f"The first keys of the state dict: {named}."] if named else [],
        "Save model.module.state_dict() of the wrapped model, or strip the prefix: "
        "{key.removeprefix('module.'): value for key, value in state.items()}.",
    )


# -- DDP316


def _not_waited(recording: Recording) -> Finding | None:
    """DDP316: after a line from which a call was made, the source uses the tensor before it waits."""
    made: dict[tuple[str, int], set[int]] = defaultdict(set)
    dropped: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank, record in recording.ranks.items():
        for call in record.calls:
            path, _, line = call.site.via.rpartition(":")  # a function that returns the Work made the call
            places = [(call.site.file, call.site.line), *([(path, int(line))] if line.isdigit() else [])]
            for place in places:
                made[place].add(rank)
                if call.state is CallState.DROPPED:
                    dropped[place].add(rank)
    for path, source in sorted(recording.sources.items()):
        for one in unwaited(source) if "async_op" in source or "isend" in source or "irecv" in source else ():
            place = path, one.line
            if place in dropped:
                return _thrown_away(path, one, sorted(dropped[place]))
            if place in made:
                guarded = one.use_line and set(guards_of(source, one.use_line)) - set(guards_of(source, one.line))
                return _early_use(path, one, sorted(made[place]), guarded=bool(guarded))
    return None


_WAIT = "Keep the handle and call handle.wait() before the tensor is read, changed or freed."


def _thrown_away(path: str, one: Unwaited, ranks: list[int]) -> Finding:
    """The Works of these ranks were deleted before anything waited for them."""
    site = Site(path, one.line, one.function)
    return _finding(
        WORK_NOT_WAITED,
        f"{phrases.ranks(ranks, True)} discarded the Work of {one.op}{phrases.at(site)} before anything waited for it.",
        dict.fromkeys(ranks, site),
        [],
        _WAIT,
        certainty="likely",
        hint=Hint(path, one.line, one.reason.rstrip(".")),
    )


def _early_use(path: str, one: Unwaited, ranks: list[int], *, guarded: bool) -> Finding:
    """The call was recorded; that it is asynchronous and used too early is read from the source: a warning."""
    site = Site(path, one.line, one.function)
    done = "changed" if one.changed else "used"
    unknown = " That line is under a condition: which of these ranks reach it was not recorded."
    finding = _finding(
        WORK_NOT_WAITED,
        f"{phrases.ranks(ranks, True)} called {one.op}{phrases.at(site)}. According to the source it is asynchronous, with no wait()"
        + (f" before {one.tensor} is {done}." if one.use_line else "."),
        dict.fromkeys(ranks, site),
        [],
        _WAIT,
        "warning",
        "likely",
        Hint(path, one.line, f"{one.reason}{unknown if guarded else ''}".rstrip(".")),
    )
    if guarded and len(ranks) > 1:
        return replace(finding, culprits=(), sides=tuple((rank,) for rank in ranks))
    return finding


# -- DDP606


def _resumed_without(recording: Recording) -> Finding | None:
    """DDP606: a checkpoint was read, but its RNG state, epoch or position was not restored."""
    places: dict[int, Site] = {}
    why: list[str] = []
    for rank, record in recording.ranks.items():
        for read in record.events(CheckpointRead):
            after = replace(record, history=tuple(e for e in record.history if e.began_ns >= read.began_ns))
            resumed = any(load.what == "optimizer" for load in after.events(StateLoaded))
            reason = _forgotten(read, after) if resumed else ""
            if reason:
                places[rank] = read.site
                why += [reason] if reason not in why else []
    if not places:
        return None
    return _finding(
        RNG_NOT_RESTORED,
        f"{phrases.ranks(places, True)} resumed from a checkpoint, but {why[0]}.",
        places,
        [f"The checkpoint: {reason}." for reason in why[1:]],
        "Restore all that the checkpoint holds: torch.set_rng_state(...) (and random, numpy, cuda), start at the next "
        "epoch, sampler.set_epoch(epoch), and skip the batches already done.",
        certainty="likely",
    )


def _forgotten(read: CheckpointRead, after: RankRecord) -> str:
    """What of this checkpoint the events after it do not restore."""
    numbers = read.numbers
    random = [key for key in read.keys if _RNG.search(key)]
    if random and not after.events(RngRestored):
        return f"its RNG state ({', '.join(random[:3])}) is never restored"
    epoch = next((numbers[key] for key in numbers if "epoch" in key.lower()), None)
    begun = next((sampler.epoch for sampler in after.events(SamplerPass) if sampler.shuffle), None)
    if epoch and begun is not None and begun < epoch:
        return f"it was saved in epoch {epoch}, and the sampler starts at epoch {begun} again"
    position = next((k for k, n in numbers.items() if _POSITION.search(k) and "size" not in k and n > 0), "")
    loop = next(iter(after.events(DataLoop)), None)
    if position and loop and loop.batches and loop.complete and loop.steps is not None and loop.steps >= loop.batches:
        return f"it was saved at {position} {numbers[position]} of an epoch, and that epoch starts from its beginning again"
    return ""


# -- DDP603, DDP413


def _one_file(recording: Recording) -> Finding | None:
    """DDP603: several ranks write one file."""
    writers: dict[str, dict[int, Site]] = defaultdict(dict)
    for rank, record in recording.ranks.items():
        for save in record.events(CheckpointSaved):
            if save.path.startswith("/") and not save.path.startswith("/dev/"):
                writers[save.path][rank] = save.site
    shared = {path: ranks for path, ranks in writers.items() if len(ranks) > 1}
    if not shared:
        return None
    path, places = next(iter(sorted(shared.items())))
    return _finding(
        CHECKPOINT_RACE,
        f"{phrases.ranks(places, True)} all write {path}: the writes race, and a reader may see a partial file.",
        places,
        [],
        "Save on rank 0 only (if rank == 0: torch.save(...); then dist.barrier()), or to one file per rank.",
    )


def _hidden_attribute(recording: Recording) -> Finding | None:
    """DDP413: an attribute of the module was set on its wrapper, where the module never sees it."""
    events = {r: found[-1] for r, record in recording.ranks.items() if (found := record.events(AttributeOnWrapper))}
    if not events:
        return None
    name = next(iter(events.values())).name
    return _finding(
        HIDDEN_ATTRIBUTE,
        f"{name} is set on the wrapper, but it is an attribute of the wrapped module, which never sees it.",
        {rank: event.site for rank, event in events.items()},
        [],
        f"Set it on the module: model.module.{name} = ...",
    )


def left_quietly(record: RankRecord) -> bool:
    """Whether a process exited with status 0 before the script ended."""
    return record.ending is not None and record.ending.how == "died" and record.ending.code == 0
