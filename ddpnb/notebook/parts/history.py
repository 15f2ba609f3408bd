"""The last runs: which one is shown, and two of them side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ddpnb.errors import UsageError
from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.render import runs
from ddpnb.render.controls import Head
from ddpnb.studies.comparison import compare_runs
from ddpnb.world.run import Run


class LastRuns(Part[Fragment]):
    name = "history"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("History", "last runs")
        self._compared: tuple[int, int] | None = None
        self._comparison = self._text = ""

    def refresh(self, head: Head) -> None:
        del head
        now = self.context.present
        last = self.context.world.last_run if now is not None and now.busy else None
        rows = [_row(run, stands=run is last and run.done) for run in self.context.world.runs]
        shown = self.context.shown
        answer = self.context.tasks.answer(self.name)
        html = runs.history(rows, shown.number if shown is not None else None, self._compared, answer)
        listed = "\n".join(f"run {row.number}: {row.what}, {row.outcome}" for row in rows)
        self.widget.show(html + self._comparison, "\n\n".join(filter(None, (listed, self._text))))

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        if action == "show run":
            self.context.tasks.start("showing a run", lambda: self._show(values.get("number", "")), self.name)
        elif action == "compare runs":
            self.context.tasks.start("comparing two runs", lambda: self._compare(values), self.name)
        else:
            return False
        return True

    def _show(self, number: str) -> None:
        self.context.show_run(self._run(number) if number else None)

    def _compare(self, values: Mapping[str, str]) -> None:
        first, second = (self._run(values.get(name, "")) for name in ("first", "second"))
        comparison = compare_runs(first, second)
        self._compared = first.number, second.number
        self._comparison, self._text = comparison.html, str(comparison)

    def _run(self, number: str) -> Run:
        run = next((run for run in self.context.world.runs if str(run.number) == number), None)
        if run is None:
            raise UsageError(f"run {number or '?'} is not kept any more.", "Choose one of the list.")
        return run


def _row(run: Run, *, stands: bool) -> runs.Row:
    diagnosis = run.diagnosis if run.done and run.recording is not None else None
    return runs.Row(
        run.number,
        run.what,
        time.strftime("%H:%M:%S", time.localtime(run.began)),
        diagnosis.timing.get("run_s") if diagnosis is not None else None,
        run.outcome,
        tuple(f"{one.code} {one.name}" for one in diagnosis.findings) if diagnosis is not None else (),
        stands,
    )
