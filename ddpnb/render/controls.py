"""The controls of a World: the head of the dashboard, and the forms for runs and holds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpnb.model.calls import OPERATIONS
from ddpnb.render import markup

# outcome: (icon, role, words)
_OUTCOMES = {
    "idle": ("idle", "faint", "idle"),
    "running": ("compute", "note", "running"),
    "ok": ("done", "ok", "OK"),
    "hang": ("stop", "error", "hang"),
    "crash": ("gone", "error", "crash"),
    "divergence": ("warning", "error", "divergence"),
    "interrupted": ("gone", "note", "interrupted"),
    "released": ("release", "note", "released"),
    "held": ("hold", "note", "held"),
    "starting": ("wait", "note", "starting up"),
    "closed": ("gone", "faint", "closed"),
}


@dataclass(frozen=True, slots=True)
class Head:
    """The content of the head. ``busy``: actions in progress; ``said``: the result of the last one."""

    title: str
    description: str
    outcome: str
    detail: str = ""
    alive: bool = True  # the World is open
    can_begin: bool = True  # the ranks can be restarted
    in_run: bool = False
    held: bool = False
    busy: tuple[str, ...] = ()
    said: str = ""
    bad: bool = False


# Shown by the page itself: widgets/static/keys.js
KEYS = '<button type="button" data-action="keys" aria-label="keyboard shortcuts" title="keyboard shortcuts" aria-keyshortcuts="?">?</button>'


def head(content: Head) -> str:
    """Title, outcome, and the main buttons."""
    image, role, words = _OUTCOMES.get(content.outcome, ("why", "faint", content.outcome))
    detail = f", {content.detail}" if content.detail else ""
    state = f'<span class="{role}" role="status" style="font-weight:600">{markup.icon(image)} {markup.text(words)}{markup.text(detail)}</span>'
    buttons = (_buttons(content) if content.alive else "") + KEYS
    return (
        f'<div class="row head"><b>{markup.text(content.title)}</b><span class="mono">{markup.text(content.description)}</span>{state}'
        f'<span class="space"></span>{buttons}</div>{progress(content.busy)}{message(content.said, bad=content.bad)}'
    )


def progress(busy: Sequence[str]) -> str:
    """The actions in progress; empty if there are none."""
    if not busy:
        return ""
    named = markup.text(", ".join(busy))
    return f'<div class="row" style="margin-top:8px"><progress aria-label="working"></progress><span>{named} …</span></div>'


def message(text: str, *, bad: bool = False) -> str:
    """The result of the last action, or an error; empty if there is none."""
    if not text:
        return ""
    return f'<div class="said{" bad" * bad}" role="{"alert" if bad else "status"}">{markup.text(text, 2000)}</div>'


def _buttons(content: Head) -> str:
    free = not content.busy
    why = markup.button("why", "why", image="why", enabled=content.in_run, title="diagnose all ranks now", key="w")
    hold = markup.button(
        "hold", "hold", image="hold", enabled=free, title="stop every rank before its next collective", key="h"
    )
    step = markup.button("step 1", "step", image="step", title="let held ranks make one collective", key="s")
    resume = markup.button("resume", "resume", image="go", title="let held ranks continue", key="r")
    release = markup.button(
        "release",
        "release",
        image="release",
        enabled=content.in_run,
        main=content.in_run,
        title="interrupt ranks that hang or wait; processes and variables are kept",
        key="x",
    )
    restart = markup.button(
        "restart",
        "restart",
        image="restart",
        enabled=free,
        title="new processes for ranks that are dead or stopped; if none is, for those that hang, after a second click",
    )
    return "".join((why, *((step, resume) if content.held else (hold,)), release, restart if content.can_begin else ""))


def launcher(
    most: int, backends: Sequence[str], jobs: Sequence[tuple[str, str]] = (), *, busy: str = "", said: str = ""
) -> str:
    """The form that launches a World, or attaches to a job that runs already.

    Args:
        most: the largest number of ranks to choose.
        backends: to choose from.
        jobs: folder and description of each job that runs.
        busy: the progress of a launch, as text.
        said: why the last launch failed.
    """
    form = (
        '<form class="row" data-action="launch">'
        + markup.choice("ranks", "n", [(str(n), str(n)) for n in range(1, most + 1)], "4" if most >= 4 else str(most))
        + markup.choice("backend", "backend", [("", "auto"), *((name, name) for name in backends)])
        + markup.choice(
            "fence",
            "fence",
            [("raise", "raise on a mismatch"), ("warn", "warn"), ("off", "off")],
        )
        + markup.button("launch", "launch", image="go", main=False, enabled=not busy)
        + "</form>"
    )
    going = (
        f'<div class="row" style="margin-top:8px"><progress aria-label="launching"></progress><span role="status">{markup.text(busy)}</span>{markup.button("cancel", "cancel")}</div>'
        if busy
        else ""
    )
    failed = message(said, bad=True)
    head = '<div class="row head"><b>ddpnb</b><span class="faint">no ranks yet</span></div>'
    bisect = markup.button(
        "bisect", "guide", image="go", title="find which options, value or commit make a script fail"
    )
    others = (
        ""
        if busy
        else f'{_jobs(jobs)}<div class="row" style="margin-top:10px">A script fails, and you look for the cause: {bisect}</div>'
    )
    return f'{head}<div style="margin-top:10px">{form}</div>{others}{going}{failed}'


def _jobs(jobs: Sequence[tuple[str, str]]) -> str:
    """A row for each job that runs, with a button."""
    rows = "".join(
        f'<li class="row">{markup.button("attach", "attach", image="go", folder=folder)}'
        f'<code class="mono">{markup.text(told, 200)}</code></li>'
        for folder, told in jobs
    )
    again = markup.button("look again", "jobs", image="why")
    if not rows:
        return f'<div class="row faint" style="margin-top:10px">No job runs here with ddpnb run. {again}</div>'
    return f'<div style="margin-top:10px">Jobs that run here: {again}<ul class="plain">{rows}</ul></div>'


def runs(
    pitfalls: Iterable[tuple[str, str]], scripts: Iterable[str], *, chooser: str = "", enabled: bool, going: bool
) -> str:
    """What to run: a script with its arguments, or a pitfall, broken or fixed.

    Args:
        pitfalls: name and label of each.
        scripts: files to choose from.
        chooser: a folder to choose a script from, as HTML.
        enabled: the ranks are idle.
        going: a run is in progress.
    """
    listed = "".join(f"<option{markup.attributes({'value': path})}></option>" for path in scripts)
    script = (
        '<form class="row" data-action="run">'
        f'<label>script<input aria-label="script" name="script" list="ddpnb-scripts" placeholder="train.py" size="24"></label><datalist id="ddpnb-scripts">{listed}</datalist>'
        + markup.button("browse", "browse", image="folder", title="choose a script from a folder")
        + markup.field("arguments", "arguments", hint="--steps 20", size=24)
        + markup.button("run", "run", image="go", enabled=enabled)
        + f"{chooser}</form>"
    )
    story = (
        '<form class="row" data-action="pitfall" style="margin-top:8px">'
        + markup.choice("or a pitfall", "name", pitfalls)
        + markup.button("run broken", "pitfall", image="fault", enabled=enabled)
        + markup.button("run fixed", "pitfall", image="heal", enabled=enabled, fixed="1")
        + markup.button("read", "story", image="why")
        + "</form>"
    )
    end = (
        f'<div style="margin-top:8px">{markup.button("end this run", "release", image="release")}</div>'
        if going
        else ""
    )
    return script + story + end


def hold(size: int, armed: Sequence[str], *, enabled: bool) -> str:
    """The forms for holds, steps and expressions, and the armed holds."""
    form = (
        '<form class="row" data-action="hold at">'
        + markup.choice("before", "before", [("", "any call"), *((op, op) for op in OPERATIONS)])
        + markup.number("number", "seq", least=1, hint="any")
        + markup.field("line or function", "site", hint="train.py:91", size=14)
        + markup.field("when", "when", hint="step == 5", size=14)
        + markup.rank_boxes(size)
        + markup.button("hold there", "hold at", image="hold", enabled=enabled)
        + "</form>"
    )
    step = (
        '<form class="row" data-action="step" style="margin-top:8px">'
        + markup.number("calls", "n", 1, least=1)
        + markup.rank_boxes(size)
        + markup.button("step", "step", image="step", enabled=enabled)
        + markup.button("resume", "resume", image="go", enabled=enabled)
        + "</form>"
    )
    look = (
        '<form class="row" data-action="evaluate" style="margin-top:8px">'
        + markup.field("expression, in each rank's current frame", "expression", hint="loss.item()", size=34)
        + markup.button("evaluate", "evaluate", image="why", enabled=enabled)
        + "</form>"
    )
    rows = "".join(
        f"<li>{markup.text(hold, 200)} {markup.button('remove', 'unhold', image='gone', number=number)}</li>"
        for number, hold in enumerate(armed)
    )
    return form + step + look + (f'<ul aria-label="armed holds">{rows}</ul>' if rows else "")


def picture(drawn: bytes, words: str, *, save: bool = True, again: bool = False) -> str:
    """A figure, with buttons to save it and to draw it ``again``; ``drawn``: PNG."""
    shown = f'<img alt="{markup.text(words)}" style="max-width:100%" src="data:image/png;base64,{b64encode(drawn).decode()}">'
    buttons = markup.button("draw again", "draw", image="restart") if again else ""
    buttons += markup.button("save PNG", "save PNG") + markup.button("save SVG", "save SVG") if save else ""
    return shown + (f'<div class="row">{buttons}</div>' if buttons else "")
