"""The controls of a World: the head of the dashboard, and the forms for runs and holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ddpnb.recording.calls import OPERATIONS
from ddpnb.render import answers, markup
from ddpnb.render.answers import Answer
from ddpnb.render.margin import Mark

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


_STEPS = (
    ("collective", "collectives"),
    ("over", "lines (over)"),
    ("into", "lines (into)"),
    ("out", "functions (out)"),
    ("iteration", "iterations"),
)
_RELEASE = "interrupt ranks that hang or wait; processes and variables are kept"
_SAVE = "write all that is known of this run to a file, for ddpnb.load()"
_EXPORT = "write a script of plain torch that makes the same calls"
_SHARE = "write this run as one HTML page"
_COPY = "copy all findings as Markdown, with versions and the command, for an issue or a chat"
_RESTART = "new processes for ranks that are dead or stopped; else for those in a run, or for all, after a second click"


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
    dead: bool = False  # ranks have no process
    ran: bool = False  # there is a run, or a start-up, to save and to report
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


# What is said when the ranks cannot be reached any more: of a world, and of a job.
_CLOSED = {
    True: "The world is closed: its ranks have ended. This is its last state.",
    False: "This job is no longer followed. This is its last state.",
}

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
    buttons = _buttons(content) if content.alive else ""
    over = message(_CLOSED[content.can_begin]) if not content.alive else ""
    return (
        f'<div class="row head"><b>{markup.text(content.title)}</b><span class="mono">{markup.words(content.description)}</span>'
        f'<span class="state" role="status" title="{markup.text(content.state)}">'
        f'<b class="{role}">{markup.icon(image)} {markup.text(words)}</b>{last}{details}</span></div>'
        f'{over}<div class="row tools"><div class="row">{buttons}</div><div class="row">{run_buttons(content)}{KEYS}</div></div>'
        f"{answers.html(content.answer)}"
    )


def run_buttons(content: Head) -> str:
    """What can be done with the whole run, once for all its findings."""
    enabled = content.ran and not content.busy
    rows = (
        ("save", "save", "save", _SAVE),
        ("export", "export", "script", _EXPORT),
        ("share", "share", "share", _SHARE),
        ("copy report", "report", "copy", _COPY),
    )
    return "".join(
        markup.button(label, action, image=image, enabled=enabled, title=title) for label, action, image, title in rows
    )


def message(text: str, *, bad: bool = False) -> str:
    """The result of the last action, or an error; empty if there is none."""
    if not text:
        return ""
    return f'<div class="said{" bad" * bad}" role="{"alert" if bad else "status"}">{markup.text(text, 2000)}</div>'


def _buttons(content: Head) -> str:
    free, held, in_run = not content.busy, content.held, content.in_run
    main = "restart" if content.dead and not in_run else "release" if in_run else ""
    rows = (
        ("why", "why", "why", in_run, "diagnose all ranks now", "w"),
        (
            "hold",
            "hold",
            "hold",
            free and content.activity != "ended",
            "stop every rank before its next collective",
            "h",
        ),
        ("step 1", "step", "step", held, "let held ranks make one collective", "s"),
        ("resume", "resume", "go", held, "let held ranks continue", "r"),
        ("release", "release", "release", in_run, _RELEASE, "x"),
        ("restart", "restart", "restart", free, _RESTART, ""),
    )
    return "".join(
        markup.button(label, action, image=image, enabled=enabled, main=action == main, title=title, key=key)
        for label, action, image, enabled, title, key in rows
        if action != "restart" or content.can_begin
    )


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
    form = markup.form(
        "launch",
        markup.choice("ranks", "n", [(str(n), str(n)) for n in range(1, most + 1)], str(min(4, most))),
        markup.choice("backend", "backend", [("", "auto"), *((name, name) for name in backends)]),
        markup.choice("fence", "fence", [("raise", "raise on a mismatch"), ("warn", "warn"), ("off", "off")]),
        markup.button("launch", "launch", image="go", enabled=not busy),
    )
    going = (
        f'<div class="row" style="margin-top:8px"><progress aria-label="launching"></progress><span role="status">{markup.text(busy)}</span>{markup.button("cancel", "cancel")}</div>'
        if busy
        else ""
    )
    failed = answers.html(Answer((), said, bad=True))
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
        f'<li class="row job">{markup.button("attach", "attach", image="go", target=target)}'
        f"<code{markup.attributes({'class': 'mono', 'title': told})}>{markup.words(told, 200)}</code></li>"
        for target, told in jobs
    )
    again = markup.button("look again", "jobs", image="why")
    if not rows:
        return f'<div class="row faint" style="margin-top:10px">No job runs here with ddpnb run. {again}</div>'
    return f'<div style="margin-top:10px">Jobs that run here: {again}<ul class="plain">{rows}</ul></div>'


def runs(
    pitfalls: Mapping[str, Iterable[tuple[str, str, str]]],
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
        pitfalls: by chapter, of each its name, its label and words by which it is found.
        scripts: files to choose from.
        chooser: a folder to choose a script from, as HTML.
        enabled: the ranks are idle.
        going: a run is in progress.
        script_answer, pitfall_answer: to the actions of the two forms.
    """
    script = markup.form(
        "run",
        markup.offered("script", "script", scripts, hint="train.py", size=24),
        markup.button("browse", "browse", image="folder", title="choose a script from a folder"),
        markup.field("arguments", "arguments", hint="--steps 20", size=24),
        markup.button("run", "run", image="go", enabled=enabled),
        markup.button("end this run", "release", image="release", enabled=going),
        answers.html(script_answer),
        chooser,
    )
    story = markup.form(
        "pitfall",
        markup.grouped("or a pitfall", "name", pitfalls),
        markup.button("run broken", "pitfall", image="fault", enabled=enabled),
        markup.button("run fixed", "pitfall", image="heal", enabled=enabled, fixed="1"),
        markup.button("read", "story", image="why"),
        answers.html(pitfall_answer),
    )
    return script + story


def hold(
    size: int,
    armed: Sequence[tuple[str, Mark]],
    *,
    enabled: bool,
    answered: Sequence[Answer] = (Answer(), Answer(), Answer()),  # frozen
) -> str:
    """The forms for holds, steps and expressions, and the holds with their state; ``answered``: the answers of the three."""
    to_hold, to_step, to_evaluate = answered
    form = markup.form(
        "hold at",
        markup.choice("before", "before", [("", "any call"), *((op, op) for op in OPERATIONS)]),
        markup.number("number", "seq", least=1, hint="any"),
        markup.field("its line or function", "site", hint="train.py:91", size=14),
        markup.field("when", "when", hint="step == 5", size=14),
        markup.field("at a line", "line", hint="train.py:40", size=14),
        markup.field("value that differs", "differs", hint="len(batch)", size=14),
        '<label class="beside"><input type="checkbox" name="parted" value="1">where ranks part</label>',
        '<label class="beside"><input type="checkbox" name="exception" value="1">unhandled exception</label>',
        markup.rank_boxes(size),
        markup.button("hold there", "hold at", image="hold", enabled=enabled),
        answers.html(to_hold),
    )
    step = markup.form(
        "step",
        markup.number("calls", "n", 1, least=1),
        markup.choice("of", "how", _STEPS, "collective"),
        markup.rank_boxes(size),
        markup.button("step", "step", image="step", enabled=enabled),
        markup.button("resume", "resume", image="go", enabled=enabled),
        answers.html(to_step),
    )
    look = markup.form(
        "evaluate",
        markup.field("expression, in each rank's current frame", "expression", hint="loss.item()", size=34),
        markup.button("evaluate", "evaluate", image="why", enabled=enabled),
        answers.html(to_evaluate),
    )
    rows = (
        f"{markup.text(hold, 200)}: <b>{mark.state}</b> "
        f"{markup.button('disable' if mark.on else 'enable', 'switch hold', enabled=enabled, number=number)} "
        f"{markup.button('remove', 'unhold', image='gone', enabled=enabled, number=number)}"
        for number, (hold, mark) in enumerate(armed)
    )
    return form + step + look + markup.items(rows, "armed holds")


def picture(
    drawn: bytes,
    words: str,
    *,
    save: bool = True,
    again: bool = False,
    answer: Answer = Answer(),  # noqa: B008  # frozen
) -> str:
    """A figure, with buttons to save it and to draw it ``again``, and their answer; ``drawn``: PNG."""
    shown = markup.picture(drawn, words)
    buttons = markup.button("draw again", "draw", image="restart") if again else ""
    buttons += markup.button("save PNG", "save PNG") + markup.button("save SVG", "save SVG") if save else ""
    return shown + (f'<div class="row">{buttons}{answers.html(answer)}</div>' if buttons else "")
