"""The tools that only look: their docstrings are what an agent reads of them."""

from __future__ import annotations

import os
import time

from ddpnb.agents import answers, rows
from ddpnb.agents.sources import Sources, wait_s
from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.arguments import short
from ddpnb.recording.files import check_writable, write_whole
from ddpnb.recording.recording import Recording
from ddpnb.render import explanation
from ddpnb.render.parting import partings
from ddpnb.render.source_lines import lines
from ddpnb.world.job import Job, jobs
from ddpnb.world.tensors import TensorByRank

_TICK_S = 0.5  # between two diagnoses of a job that is waited for
_SUFFIXES = (".md", ".html", ".json")


class Looking:
    """Each method is a tool.

    Args:
        sources: the jobs and files by name.
        evaluates: whether expressions may run on ranks.
    """

    def __init__(self, sources: Sources, *, evaluates: bool = False) -> None:
        self._sources = sources
        self._evaluates = evaluates

    def jobs(self) -> answers.Jobs:
        """List the jobs of torch.distributed that run on this machine. The field `job` is what the other tools take.

        A job that is not recorded was started without ddpnb: only its stacks and variables can be read.
        """
        found = [rows.job_row(one) for one in jobs()]
        ask = ["diagnose: say why this job hangs."] if found else ["run: start a job; report: read its logs."]
        return answers.Jobs(jobs=found, started=self._sources.started.names, next=ask)

    def attach(self, job: str) -> answers.Attached:
        """Attach to a job that runs here; the other tools also do this by themselves. The job continues.

        job: as `jobs` lists it: a folder, or the process ID of a rank or of the launch command; or the name of a run.
        """
        live = self._sources.live(job)
        return answers.Attached(
            job=rows.job_row(live._found),
            outcome=live.run.outcome,
            limits=[] if live.recorded else [rows.UNRECORDED],
            next=["diagnose: say why this job hangs; status: what each rank is doing."],
        )

    def status(self, job: str) -> answers.Status:
        """What every rank of a job is doing at this moment: state, call, step; the place in the program is in `data`.

        job: as for attach.
        """
        command = self._sources.started.get(job)
        if command is not None and command.target is None:
            how = "" if (known := command.exit_status) is None else f" with status {known}"
            ranks = "its ranks have not started yet: ask again" if command.state == "starting" else "diagnose says why"
            raise UsageError(f"{job} {'has' if how else 'is'} {command.state}{how}.", f"{ranks[0].upper()}{ranks[1:]}.")
        live = self._sources.live(job)
        found = live.status()
        return answers.Status(
            job=job,
            outcome=live.run.outcome,
            held=list(found.held),
            ranks=[rows.rank_row(one) for one in found.ranks],
            limits=[] if live.recorded else [rows.UNRECORDED],
            next=["diagnose: say why ranks wait."] if any(one.state == "waiting" for one in found.ranks) else [],
        )

    def diagnose(self, job: str, wait: float = 0.0) -> answers.Diagnosed:
        """Say why a job hangs, crashed or diverged: finding, culprits, certainty, evidence, line and fix. Ask this first.

        job: as for attach; or the path of a log, a dump, a recording (.ddpnb), or a folder of these. wait: seconds to wait at
        most until the verdict is settled, or something is wrong: that ranks are blocked shows after some seconds (15 are
        enough); of a job that works, all of them pass.
        """
        deadline = time.monotonic() + wait_s(wait)
        while self._sources.is_starting(job) and time.monotonic() < deadline:
            time.sleep(_TICK_S)
        while True:
            recording, diagnosis = self._sources.recording(job)
            wrong = diagnosis.settled or any(one.severity != "note" for one in diagnosis.findings)
            left = deadline - time.monotonic()
            if wrong or left <= 0 or not self._sources.is_live(job):
                return rows.diagnosed(diagnosis, recording)
            time.sleep(min(_TICK_S, left))

    def explain(self, what: str) -> answers.Explained:
        """Explain a finding (DDP301), an error message, or words such as `barrier hang`: what it means and how to fix it.

        what: a code, a name, a text, or a few words.
        """
        found = explanation.explain(what)
        texts = [answers.Text(text=one.summary) for one in found.findings]
        if found.note:
            texts.append(answers.Text(text=found.note))
        return answers.Explained(
            findings=[one.code for one in found.findings], pages=[rows.page_row(one) for one in found.pages], data=texts
        )

    def stacks(self, job: str, ranks: list[int] | None = None) -> answers.Stacks:
        """The stack of the main thread of each rank, with variables; ranks at the same lines are one entry.

        job: as for diagnose. ranks: which ones; all by default.
        """
        recording = self._recording(job)
        wanted = [*recording.ranks] if ranks is None else arguments.ranks(ranks, recording.world_size)
        found = rows.stack_rows(recording, wanted)
        seen = {rank for row in found for rank in row.ranks}
        return answers.Stacks(stacks=found, missing=[rank for rank in wanted if rank not in seen])

    def variables(self, job: str, frame: int = 0, name: str = "", expression: str = "") -> answers.Variables:
        """Variables of the same function on all ranks side by side, those that differ first. Works while ranks hang.

        job: as for attach. frame: 0 for the innermost function that most ranks are in, 1 for its caller. name: a variable
        to open, as args, batch['image'] or model.fc.weight (a tensor is described in numbers). expression: Python that
        runs on the ranks, with all its side effects (needs a server that was started with --evaluate).
        """
        live = self._sources.live(job)
        if expression:
            return self._evaluated(live, expression, frame)
        live._ranks.check_alive(())
        found = live.diff(frame, name).found
        if found is None or (name and not found.rows):
            return _of_tensor(live.tensor(name, frame)) if name else _no_variables()
        places = {rank: where for rank, site in found.sites.items() if (where := rows.place(site)) is not None}
        return answers.Variables(
            absent=list(found.absent),
            variables=[rows.variable_row(row.name, row.values, differs=row.differs) for row in found.rows],
            data=answers.FunctionData(function=found.function, places=places),
        )

    def _evaluated(self, live: Job, expression: str, frame: int) -> answers.Variables:
        if not self._evaluates:
            raise UsageError(
                "expressions run code on the ranks, which this server may not do.",
                "Name a variable instead, or start the server with: ddpnb mcp --evaluate",
            )
        found = live.evaluate(expression, frame=frame)
        values = {rank: str(one) for rank, one in found.items()}
        return answers.Variables(
            absent=[rank for rank, one in found.items() if one.error],
            variables=[rows.variable_row(expression, values, differs=len({*values.values()}) > 1)],
            data=answers.FunctionData(),
        )

    def partings(self, job: str) -> answers.Partings:
        """Where the ways of the ranks part: the decision (file, line, expression), the way of each side, and its values.

        job: as for diagnose.
        """
        found = partings(self._recording(job))
        return answers.Partings(
            partings=rows.parting_rows(found),
            data=answers.Notes(notes=list(found.notes)),
            limits=["Paths are recorded on Python 3.12 and later, in jobs that run under ddpnb."],
        )

    def lines(self, job: str, file: str = "", window: int = -1) -> answers.Lines:
        """Which ranks ran which line of a file: the lines that only some ranks ran.

        job: as for diagnose. file: a path, or its end; empty: where the ranks part first. window: -1: since the last
        collective or optimizer step that all ranks have begun; -2: the part before, and so on.
        """
        view = lines(self._recording(job), file or None, window)
        return answers.Lines(
            ranks=list(view.ranks),
            unsure=list(view.unsure),
            lines=[
                answers.LineRow(
                    line=row.number, ran=list(row.ranks), did_not=list(row.others), data=answers.Text(text=row.text)
                )
                for row in view.rows
                if row.only_some
            ],
            data=answers.FileData(file=view.file, part=view.title, files=list(view.files), notes=list(view.notes)),
        )

    def compare(self, job: str) -> answers.Compared:
        """Compare the replicas of a live job tensor by tensor, exactly, without a collective; also while ranks hang.

        job: as for attach.
        """
        found = self._sources.live(job).compare()
        return answers.Compared(
            equal=found.equal,
            compared=found.compared,
            exact=found.exact,
            steps=dict(found.steps),
            differences=[
                answers.DifferenceRow(
                    model=one.model,
                    gradient=one.gradient,
                    sides=[list(side) for side in one.sides],
                    largest=one.largest,
                    data=answers.Text(text=one.name),
                )
                for one in found.differences
            ],
            data=answers.Notes(notes=list(found.notes)),
            limits=[] if found.compared else ["No replicas are known: nothing was compared."],
        )

    def report(self, job: str, file: str = "") -> answers.Report:
        """Diagnose a job, a log or a folder, and write a report as Markdown; secrets and names of machines are masked.

        job: as for diagnose. file: a new .md, .html or .json file below the server's directory, to write it there too.
        """
        recording, diagnosis = self._sources.recording(job)
        text = diagnosis.to_markdown()
        if file:
            path = _new_file(file)
            if path.endswith(".html"):
                recording.to_html(path)
            elif path.endswith(".json"):
                diagnosis.save(path)
            else:
                write_whole(path, text + "\n")
        codes = [finding.code for finding in diagnosis.findings]
        return answers.Report(outcome=diagnosis.outcome, codes=codes, file=file, data=answers.Text(text=text))

    def _recording(self, job: str) -> Recording:
        return self._sources.recording(job)[0]


def _no_variables() -> answers.Variables:
    return answers.Variables(
        absent=[],
        variables=[],
        data=answers.FunctionData(),
        limits=["No rank is in a function of the user's code."],
    )


def _of_tensor(found: TensorByRank) -> answers.Variables:
    """A tensor in numbers, on each rank."""
    values = {rank: str(facts) for rank, facts in found.ranks.items()}
    row = rows.variable_row(found.name, values, differs=not found.equal)
    return answers.Variables(absent=list(found.errors), variables=[row], data=answers.FunctionData())


def _new_file(file: str) -> str:
    """The path of a file that may be written.

    Raises:
        UsageError: it exists, is elsewhere, or of another kind.
    """
    path, here = os.path.realpath(file), os.path.realpath(os.getcwd())
    if os.path.splitext(path)[1] not in _SUFFIXES or not path.startswith(os.path.join(here, "")):
        raise UsageError(
            f"{short(file)} cannot be written.", f"Give a file below {here} that ends in {', '.join(_SUFFIXES)}."
        )
    if os.path.lexists(path):
        raise UsageError(f"{short(file)} exists.", "Give the name of a new file.")
    check_writable(path)
    return path
