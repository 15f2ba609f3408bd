"""The controls of a World: the head of the dashboard, and the forms for runs and holds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddpnb.model.calls import OPERATIONS
from ddpnb.render import answers, markup
from ddpnb.render.answers import Answer

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
    "ended": ("done", "faint", "ended"),
    "closed": ("gone", "faint", "closed"),
}


@dataclass(frozen=True, slots=True)
class Head:
    """The content of the head. ``busy``: all actions in progress; ``answer``: to those of the head itself."""

    title: str
    description: str
    activity: str  # what happens now: see ``views.present``
    last: str = ""  # the outcome of the last run, if it is over
    details: tuple[str, ...] = ()
    alive: bool = True  # the World is open
    can_begin: bool = True  # the ranks can be restarted
    in_run: bool = False
    held: bool = False
    busy: tuple[str, ...] = ()
    answer: Answer = field(default_factory=Answer)

    @property
    def state(self) -> str:
        """``idle, last run: hang``."""
        words = _words(self.activity)[2]
        last = f"last run: {_words(self.last)[2]}" if self.last else ""
        return ", ".join(filter(None, (words, last, *self.details)))


def _words(outcome: str) -> tuple[str, str, str]:
    return _OUTCOMES.get(outcome, ("why", "faint", outcome))


def look(outcome: str) -> tuple[str, str, str]:
    """Icon, role and words of an outcome."""
    return _words(outcome)


def words(outcome: str) -> str:
    """An outcome or activity as the head says it."""
    return _words(outcome)[2]


# Shown by the page itself: widgets/static/keys.js
KEYS = '<button type="button" data-action="keys" aria-label="keyboard shortcuts" title="keyboard shortcuts" aria-keyshortcuts="?">?</button>'


def head(content: Head) -> str:
    """Title and state; below them the main buttons, which never move, with the answer of the last one."""
    image, role, words = _words(content.activity)
    last = ""
    if content.last:
        image_, role_, words_ = _words(content.last)
        last = f'<span>last run: <span class="{role_}">{markup.icon(image_)} <b>{markup.text(words_)}</b></span></span>'
    details = "".join(f"<span>{markup.text(detail)}</span>" for detail in content.details)
    buttons = (_buttons(content) if content.alive else "") + KEYS
    return (
        f'<div class="row head"><b>{markup.text(content.title)}</b><span class="mono">{markup.text(content.description)}</span>'
        f'<span class="state" role="status" title="{markup.text(content.state)}">'
        f'<b class="{role}">{markup.icon(image)} {markup.text(words)}</b>{last}{details}</span></div>'
        f'<div class="row tools">{buttons}{answers.html(content.answer)}</div>'
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
    held = content.held
    step = markup.button(
        "step 1", "step", image="step", enabled=held, title="let held ranks make one collective", key="s"
    )
    resume = markup.button("resume", "resume", image="go", enabled=held, title="let held ranks continue", key="r")
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
    return "".join((why, hold, step, resume, release, restart if content.can_begin else ""))


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
    pitfalls: Iterable[tuple[str, str]],
    scripts: Iterable[str],
    *,
    chooser: str = "",
    enabled: bool,
    going: bool,
    script_answer: Answer = Answer(),  # noqa: B008  # frozen
    pitfall_answer: Answer = Answer(),  # noqa: B008
) -> str:
    """What to run: a script with its arguments, or a pitfall, broken or fixed.

    Args:
        pitfalls: name and label of each.
        scripts: files to choose from.
        chooser: a folder to choose a script from, as HTML.
        enabled: the ranks are idle.
        going: a run is in progress.
        script_answer, pitfall_answer: to the actions of the two forms.
    """
    listed = "".join(f"<option{markup.attributes({'value': path})}></option>" for path in scripts)
    script = (
        '<form class="row" data-action="run">'
        f'<label>script<input aria-label="script" name="script" list="ddpnb-scripts" placeholder="train.py" size="24"></label><datalist id="ddpnb-scripts">{listed}</datalist>'
        + markup.button("browse", "browse", image="folder", title="choose a script from a folder")
        + markup.field("arguments", "arguments", hint="--steps 20", size=24)
        + markup.button("run", "run", image="go", enabled=enabled)
        + markup.button("end this run", "release", image="release", enabled=going)
        + f"{answers.html(script_answer)}{chooser}</form>"
    )
    story = (
        '<form class="row" data-action="pitfall">'
        + markup.choice("or a pitfall", "name", pitfalls)
        + markup.button("run broken", "pitfall", image="fault", enabled=enabled)
        + markup.button("run fixed", "pitfall", image="heal", enabled=enabled, fixed="1")
        + markup.button("read", "story", image="why")
        + f"{answers.html(pitfall_answer)}</form>"
    )
    return script + story


def hold(
    size: int,
    armed: Sequence[str],
    *,
    enabled: bool,
    answered: Sequence[Answer] = (Answer(), Answer(), Answer()),  # frozen
) -> str:
    """The forms for holds, steps and expressions, and the armed holds; ``answered``: the answers of the three."""
    to_hold, to_step, to_evaluate = answered
    form = (
        '<form class="row" data-action="hold at">'
        + markup.choice("before", "before", [("", "any call"), *((op, op) for op in OPERATIONS)])
        + markup.number("number", "seq", least=1, hint="any")
        + markup.field("line or function", "site", hint="train.py:91", size=14)
        + markup.field("when", "when", hint="step == 5", size=14)
        + '<label class="beside"><input type="checkbox" name="parted" value="1">where ranks part</label>'
        + markup.rank_boxes(size)
        + markup.button("hold there", "hold at", image="hold", enabled=enabled)
        + f"{answers.html(to_hold)}</form>"
    )
    step = (
        '<form class="row" data-action="step">'
        + markup.number("calls", "n", 1, least=1)
        + markup.rank_boxes(size)
        + markup.button("step", "step", image="step", enabled=enabled)
        + markup.button("resume", "resume", image="go", enabled=enabled)
        + f"{answers.html(to_step)}</form>"
    )
    look = (
        '<form class="row" data-action="evaluate">'
        + markup.field("expression, in each rank's current frame", "expression", hint="loss.item()", size=34)
        + markup.button("evaluate", "evaluate", image="why", enabled=enabled)
        + f"{answers.html(to_evaluate)}</form>"
    )
    rows = "".join(
        f"<li>{markup.text(hold, 200)} {markup.button('remove', 'unhold', image='gone', number=number)}</li>"
        for number, hold in enumerate(armed)
    )
    return form + step + look + (f'<ul aria-label="armed holds">{rows}</ul>' if rows else "")


def picture(
    drawn: bytes,
    words: str,
    *,
    save: bool = True,
    again: bool = False,
    answer: Answer = Answer(),  # noqa: B008  # frozen
) -> str:
    """A figure, with buttons to save it and to draw it ``again``, and their answer; ``drawn``: PNG."""
    shown = f'<img alt="{markup.text(words)}" style="max-width:100%" src="data:image/png;base64,{b64encode(drawn).decode()}">'
    buttons = markup.button("draw again", "draw", image="restart") if again else ""
    buttons += markup.button("save PNG", "save PNG") + markup.button("save SVG", "save SVG") if save else ""
    return shown + (f'<div class="row">{buttons}{answers.html(answer)}</div>' if buttons else "")
