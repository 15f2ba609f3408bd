"""*Inject faults* in the dashboard: each entry of the picker, with the values that its form has by default, in the tour's script."""

from __future__ import annotations

import time
from contextlib import chdir, contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

import ddpnb
from ddpnb.notebook.dashboard import Dashboard
from ddpnb.recording.faults import KINDS
from ddpnb.render.faults import faults
from tests.recordings.scenario import launched
from tests.render.reading import Reading

pytestmark = pytest.mark.world

ROOT = Path(ddpnb.__file__).parents[1]
LONG = 240.0
PATIENCE_S = 3.0
PASSES_S = 20.0  # what passes is found while it lasts, also on a busy machine
PASSING_PATIENCE_S = 8.0  # three times this would count as a hang
SCRIPT, ARGUMENTS = "train.py", "--steps 20 --fixed"  # as the tour runs it


class Form(HTMLParser):
    """What a page sends for a form that nobody has touched."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._select = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "select":
            self._select = given["name"]
        elif tag == "option" and (self._select not in self.values or "selected" in given):
            self.values[self._select] = given["value"] or ""
        elif tag == "input" and given.get("type") == "checkbox":
            if "checked" in given:
                name = given["name"]
                self.values[name] = ",".join(filter(None, (self.values.get(name), given["value"])))
        elif tag == "input" and "name" in given:
            self.values[given["name"]] = given.get("value") or ""


@pytest.fixture(scope="module")
def pair():
    with launched(2, patience=PATIENCE_S, fork=True) as world:
        yield world


@pytest.fixture(scope="module")
def patient_pair():
    with launched(2, patience=PASSING_PATIENCE_S, fork=True) as world:
        yield world


@contextmanager
def dashboard(world):
    with chdir(ROOT / "notebooks"):
        shown = Dashboard(world)
        try:
            yield shown
        finally:
            until(shown, lambda: not shown._tasks.busy)
            shown.stop()


def played(scenario, name, play):
    def shown_in_a_dashboard(world):
        with dashboard(world) as shown:
            play(shown)
            return shown.world.last_run

    world, patience = ("patient_pair", PASSING_PATIENCE_S) if KINDS[name].passes else ("pair", PATIENCE_S)
    return scenario(f"form/{name}", shown_in_a_dashboard, world=world, patience=patience)


def until(shown, so):
    deadline = time.monotonic() + LONG
    while not so():
        assert time.monotonic() < deadline, shown.text
        time.sleep(0.02)


def arm(shown, name):
    """Arm the fault as its form has it, and start the tour's script."""
    part, world = shown.parts["faults"], shown.world
    part.take("kind", {"kind": name})
    form = Form(part.widget.html)
    assert form.values["kind"] == name
    if KINDS[name].passes:
        form.values["value:seconds"] = str(PASSES_S)
    part.take("inject", form.values)
    until(shown, lambda: shown.actions.injections and not shown._tasks.busy)
    before = world.last_run
    shown.parts["run"].take("run", {"script": SCRIPT, "arguments": ARGUMENTS})
    until(shown, lambda: world.last_run is not before)
    return world.last_run


def found_while_it_lasts(shown, run):
    """The first diagnosis that finds something, asked for with the button and shown."""
    diagnosis = run.diagnosis

    def found():
        nonlocal diagnosis
        diagnosis = run.diagnosis
        return diagnosis.findings

    until(shown, found)
    shown._act("why", {})
    until(shown, lambda: not shown._tasks.busy)
    return diagnosis


def test_the_form_sends_what_it_shows():
    sent = Form(faults("delay", 4)).values
    assert sent == {"kind": "delay", "value:seconds": "5.0", "op": "all_reduce", "seq": "", "step": "3", "ranks": "1"}


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.needs])
def test_the_finding_that_the_form_names(scenario, name):
    kind = KINDS[name]

    def play(shown):
        run = arm(shown, name)
        diagnosis = found_while_it_lasts(shown, run) if kind.passes else run.wait(LONG).diagnosis
        codes = [finding.code for finding in diagnosis.findings]
        assert codes, f"nothing was found; {run.outcome}; {run.missed}; {run.log(1)[-2000:]}"
        assert codes[0] in (kind.finding, *kind.also), str(diagnosis)
        text = Reading(shown.parts["faults"].widget.html).text
        assert all(code in text for code in (kind.finding, *kind.also))
        until(shown, lambda: codes[0] in shown.card.text)
        run.wait(LONG)

    run = played(scenario, name, play)
    assert kind.passes or run.diagnosis.findings[0].code in (kind.finding, *kind.also), str(run)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.needs])
def test_what_a_fault_needs_is_said_and_without_it_there_is_no_effect(scenario, name):
    kind = KINDS[name]

    def play(shown):
        arm(shown, name).wait(LONG)
        widget = shown.parts["faults"].widget
        assert f"Needs {kind.needs}" in Reading(widget.html).text
        if name != "reseeded":
            until(shown, lambda: "was never triggered" in Reading(widget.html).text)

    run = played(scenario, name, play)
    assert [finding.code for finding in run.diagnosis.findings] == ["DDP508"], str(run)  # the script's own
