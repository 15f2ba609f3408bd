"""From nouns of ddpnb to rows of answers."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from ddpnb.agents import answers
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.parting import Parting
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Frame
from ddpnb.render.views.status import RankStatus
from ddpnb.rules import catalogue
from ddpnb.rules.catalogue import Page
from ddpnb.world.job import Job

_MEANS = {
    "proven": "It follows from what the ranks recorded.",
    "timed": "The ranks made no progress for `patience` seconds: they may still continue.",
    "likely": "A part of it was inferred, from source text or from names: check it before you act on it.",
}
UNRECORDED = (
    "The recorder does not run in this job: only its stacks and variables are known. Start it with "
    "`ddpnb run -- COMMAND` to know its calls and paths."
)
UNSETTLED = "This is a moment of a job that runs: the verdict may change. Ask again, and compare."
_WHOLE = 3  # findings that are shown with their evidence
_CONSEQUENCES = f"findings[{_WHOLE}:]: without their evidence and places; report has them"
_FRAMES, _LIBRARY = 16, 3  # innermost frames of a stack, and how many of them may be of libraries below the program


def job_row(found: FoundJob) -> answers.JobRow:
    ranks = sorted(found.ranks)
    return answers.JobRow(
        job=found.target,
        size=found.size,
        ranks=ranks,
        pids=[found.ranks[rank] for rank in ranks],
        recorded=found.recorded,
        data=answers.CommandData(command=shlex.join(found.command), directory=found.directory),
    )


def rank_row(one: RankStatus) -> answers.RankRow:
    return answers.RankRow(
        rank=one.rank,
        state=str(one.state),
        steps=one.steps,
        data=answers.RankData(
            doing=one.doing,
            op=one.call.op if one.call is not None else "",
            seq=one.call.seq if one.call is not None else 0,
            place=place(one.site),
            checkpoint=one.checkpoint,
        ),
    )


def place(site: Site) -> answers.PlaceData | None:
    if site == NO_SITE:
        return None
    return answers.PlaceData(file=site.file, line=site.line, function=site.function)


def stack_rows(recording: Recording, ranks: Collection[int]) -> list[answers.StackRow]:
    """The main threads of these ranks, those at the same lines together; the larger sides first."""
    alike: dict[tuple[Site, ...], list[int]] = {}
    for rank, record in sorted(recording.ranks.items()):
        if rank in ranks and record.shown_stack is not None:
            alike.setdefault(tuple(frame.site for frame in record.shown_stack.frames), []).append(rank)
    rows: list[answers.StackRow] = []
    for side in sorted(alike.values(), key=len, reverse=True):
        stack = recording.ranks[side[0]].shown_stack
        frames = _of_interest(stack.frames) if stack is not None else []
        rows.append(answers.StackRow(ranks=side, data=[_frame(frame) for frame in frames]))
    return rows


def _of_interest(frames: Sequence[Frame]) -> list[Frame]:
    """The frames of the program, the innermost first, and what the innermost of them called in libraries; none of ddpnb."""
    inner = [frame for frame in reversed(frames) if not frame.own]
    below = next((at for at, frame in enumerate(inner) if frame.user), 0)
    called = inner[max(0, below - _LIBRARY) : below]
    return [*called, *(frame for frame in inner[below:] if frame.user or not below)][:_FRAMES]


def _frame(frame: Frame) -> answers.FrameData:
    return answers.FrameData(
        file=frame.file, line=frame.line, function=frame.function, user=frame.user, locals=dict(frame.locals)
    )


def diagnosed(diagnosis: Diagnosis, recording: Recording | None) -> answers.Diagnosed:
    """The diagnosis: first what the code says for any program, then its own words as data."""
    said = diagnosis.to_json()
    limits = [] if diagnosis.settled else [UNSETTLED]
    limits += [UNRECORDED] if recording is not None and any(r.unrecorded for r in recording.ranks.values()) else []
    return answers.Diagnosed(
        outcome=said["outcome"],
        settled=said["settled"],
        world_size=said["world_size"],
        exit_codes=said["exit_codes"],
        findings=[_finding(one, number) for number, one in enumerate(said["findings"])],
        data=answers.Notes(notes=[*said["notes"], *(recording.gaps if recording is not None else ())]),
        limits=limits,
        next=_next(diagnosis),
        left_out=[_CONSEQUENCES] if len(said["findings"]) > _WHOLE else [],
    )


def _finding(said: dict[str, object], number: int) -> answers.FindingRow:
    """The first has what the catalogue says of it; of those behind the first few, evidence and places are left out."""
    code = str(said["code"])
    known = catalogue.pages().get(code) if number == 0 else None
    own = ("code", "name", "severity", "certainty", "culprits", "waiting", "sides")
    given: dict[str, object] = {name: said[name] for name in own}
    words = {name: value for name, value in said.items() if name not in own}
    words |= {"evidence": [], "where": [], "tensors": []} if number >= _WHOLE else {}
    if isinstance(parting := words["parting"], dict):
        words["parting"] = {name: value for name, value in parting.items() if name != "source"}  # partings() has it
    return answers.FindingRow(
        **given,  # pyright: ignore[reportArgumentType]
        means=_MEANS.get(str(said["certainty"]), ""),
        fix=known.fix if known is not None else "",
        limits=known.unknown if known is not None else "",
        data=answers.FindingData(**words),  # pyright: ignore[reportArgumentType]
    )


def _next(diagnosis: Diagnosis) -> list[str]:
    """What to ask next; from codes and ranks alone."""
    errors = diagnosis.errors
    if not errors:
        return ["status shows what each rank is doing now; stacks shows where."]
    first = errors[0]
    asked = ["partings: the decision where the ways of the ranks part."] if first.parting is not None else []
    named = first.culprits or tuple(rank for side in first.sides for rank in side)
    if diagnosis.outcome == "hang":
        asked += [f"variables: what differs between the ranks; stacks: where ranks {list(named)[:8]} are."]
    if diagnosis.outcome == "divergence":
        asked += ["compare: which tensors differ, on which ranks."]
    return [*asked, f"explain {first.code}: what the finding means and how to fix it."]


def variable_row(name: str, values: Mapping[int, str], *, differs: bool) -> answers.VariableRow:
    return answers.VariableRow(differs=differs, data=answers.VariableData(name=name, values=dict(values)))


def page_row(page: Page) -> answers.PageRow:
    return answers.PageRow(
        code=page.code, name=page.name, what=page.what, symptom=page.symptom, fix=page.fix, limits=page.unknown
    )


def parting_rows(partings: Iterable[Parting]) -> list[answers.PartingRow]:
    return [
        answers.PartingRow(kind=one.kind, ranks=list(one.ranks), odd=list(one.odd), data=one.to_json())
        for one in partings
    ]


def done(job: Job, text: str, ranks: Iterable[RankStatus], next_: Iterable[str] = ()) -> answers.Done:
    rows = [rank_row(one) for one in ranks]
    held = [row.rank for row in rows if row.state == "held"]
    return answers.Done(done=text, held=held, ranks=rows, next=[*next_], limits=[] if job.recorded else [UNRECORDED])
