"""A bisection as a page: the forms that begin it, the next probe, what is still possible, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpnb.recording.findings import Finding
from ddpnb.render import answers, as_html, card, markup
from ddpnb.render.answers import NONE, Answer
from ddpnb.render.document import Cell, Code, Drawn, Icon, Inline, Paragraph, Span, Table
from ddpnb.studies.bisection import words
from ddpnb.studies.bisection.search import Search, Trial
from ddpnb.studies.bisection.space import RangeSpace
from ddpnb.studies.bisection.varied import Varied

if TYPE_CHECKING:  # it shows itself by this page
    from ddpnb.studies.bisection.bisecting import Bisection

_ANSWERS = {
    "bad": ("stop", "error"),
    "good": ("done", "ok"),
    "other": ("warning", "warning"),
    "skip": ("idle", "faint"),
}
_BY = (("", "-"), ("steps", "optimizer step: replicas differ"))
_COLUMNS = 12  # components that have one each
_REASON = 160
_HELP = "find what makes a program fail"


# -- the forms


def ask(command: str, most: int, ranks: int, scripts: Sequence[str], *, log: str = "", answer: Answer = NONE) -> str:
    """The first form: what fails.

    Args:
        command: in the field.
        most, ranks: the largest number of ranks to choose, and the one that is chosen.
        scripts: files to choose from.
        log: describes a search that can be continued, empty if there is none.
        answer: to the last action, such as why it cannot begin.
    """
    listed = "".join(f"<option{markup.attributes({'value': path})}></option>" for path in scripts)
    given = markup.attributes({"value": command, "size": 60, "placeholder": "train.py --amp --num-workers 4"})
    form = (
        '<form class="row" data-action="propose">'
        '<label class="long">What fails? A script with its arguments, or a launch command<input aria-label="failing command" '
        f'name="command" list="ddpnb-bisect-scripts"{given}></label>'
        f'<datalist id="ddpnb-bisect-scripts">{listed}</datalist>'
        + markup.choice("ranks", "n", [(str(n), str(n)) for n in range(1, most + 1)], str(ranks))
        + markup.button("next", "propose", image="go")
        + "</form>"
    )
    kept = (
        f'<div class="row" style="margin-top:10px">{markup.words(log, 300)} {markup.button("continue it", "continue", image="go")}</div>'
        if log
        else ""
    )
    return f"{_head(_HELP)}<div style='margin-top:10px'>{form}</div>{kept}{answers.html(answer)}"


def choose(command: str, proposed: Sequence[Varied], suggested: Sequence[Varied], *, answer: Answer = NONE) -> str:
    """The second form: what is varied.

    Args:
        command: that fails.
        proposed: options of the command.
        suggested: what is not on the command line, but may be the cause.
        answer: to the last action, or a note.
    """
    rows = [_row(number, one) for number, one in enumerate(proposed)]
    note = Span("not on the command line: its default", "faint")
    rows += [[*_row(number, one, ticked=False), note] for number, one in enumerate(suggested, len(proposed))]
    listed = Table(
        "what to vary", ("vary", "option", "fails with", "harmless value", *["note"] * bool(suggested)), rows, "", 80
    )
    none = Paragraph("The command has no options to vary: choose something below.", kind="faint")
    table = as_html.html(listed if rows else none)
    more = (
        '<details style="margin-top:8px"><summary>Something else: environment variables, a number, commits, steps</summary><div class="row">'
        + markup.field("environment variables", "env", hint="NCCL_P2P_DISABLE=1|", size=28)
        + markup.field("the first failing number of an option", "span", hint="batch-size=1..64", size=22)
        + markup.field("the first failing commit", "git", hint="v1.2..HEAD", size=16)
        + markup.choice("the first failing", "by", _BY)
        + "</div></details>"
    )
    how = (
        '<div class="row" style="margin-top:10px">'
        + markup.choice("order", "order", [("", "by halves"), ("ladder", "ladder: a single process first")])
        + markup.choice("it fails", "repeat", [("1", "always"), ("auto", "sometimes")])
        + markup.choice("start the ranks", "fork", [("", "as usual"), ("fork", "faster, by fork")])
        + markup.button("begin", "begin", image="go")
        + markup.button("back", "back")
        + "</div>"
    )
    asked = f"<p>What may be the cause? Each is tried with its harmless value, in fresh processes.</p>{table}"
    return f'{_head(command, code=True)}<form data-action="begin">{asked}{more}{how}</form>{answers.html(answer)}'


def _row(number: int, one: Varied, *, ticked: bool = True) -> list[Inline | Cell]:
    box = markup.attributes({"type": "checkbox", "name": f"on:{number}", "value": "1", "checked": ticked})
    label = markup.attributes({"aria-label": f"vary {one.name}"})
    name = markup.attributes({"aria-label": f"harmless value of {one.name}"})
    value = markup.attributes({"name": f"harmless:{number}", "value": one.harmless or "", "size": 10})
    harmless = f'<input{name}{value} placeholder="left out">' if one.failing is not None else "left out"
    vary = Drawn(f"<input{box}{label}>")
    return [vary, Code(one.name), "there" if one.failing is None else one.failing, Drawn(harmless)]


# -- the search


def head(shown: Bisection, *, idle: bool = True, pausing: bool = False, answer: Answer = NONE) -> str:
    """What is searched, how far it is, and the buttons.

    Args:
        shown: the bisection.
        idle: no probe runs.
        pausing: the one that runs is the last one for now.
        answer: to the last action.
    """
    done, result = len(shown.search.trials), shown.result
    if result is not None:
        image, role = {"found": ("done", "ok")}.get(result.outcome, ("why", "note"))
        state = f"{result.outcome}, {_count(done, 'probe')}"
    else:
        image, role = ("idle", "note") if idle else ("compute", "note")
        state = f"{_count(done, 'probe')} done, about {shown.left} to go"
    status = (
        f'<span class="{role}" role="status" style="font-weight:600">{markup.icon(image)} {markup.text(state)}</span>'
    )
    run = markup.button(
        "run to the end", "run", image="go", enabled=idle and result is None, title="make all probes that are needed"
    )
    pause = markup.button("pause", "pause", image="hold", enabled=not pausing, title="stop after the probe that runs")
    undo = markup.button(
        "undo", "undo", image="restart", enabled=idle and bool(done), title="take the last answer back"
    )
    over = markup.button("start over", "over", enabled=idle)
    stop = markup.button("end this probe", "stop", image="gone", title="end its processes; it has no answer")
    buttons = (run if idle else pause + stop) + undo + over
    row = f'<div class="row" style="margin-top:8px">{status}<span class="space"></span>{buttons}</div>'
    return f"{_head(shown.title, code=True)}{row}{answers.html(answer)}"


def upcoming(shown: Bisection, running: float | None = None) -> str:
    """The next probe, or the one that runs since so many seconds, with the buttons to run or to judge it; empty if there is a result."""
    probe = shown.next_probe() if shown.result is None else None
    if probe is None:
        return ""
    trials, command = shown.search.trials, shown.typed(probe)
    typed = f"<pre>{markup.words(command, 1000)}</pre>" if command else ""
    failed = next((one.reason for one in trials if one.answer == "bad" and one.reason), "")
    before = f'<p class="faint">It fails: {markup.text(failed, 400)}</p>' if failed else ""
    name = f"{before}<p><b>Probe {len(trials) + 1}: {markup.words(words.named(probe, shown.search), 400)}</b>"
    if running is not None:
        since = f'<span class="faint">runs for {markup.age(running)}</span>'
        return f'{name} {since}</p>{typed}<progress aria-label="probing"></progress>'
    run = markup.button("run this probe", "step", image="step")
    judge = (
        '<span class="faint">or run it elsewhere, and say how it went:</span>'
        + markup.button("good", "judge", image="done", answer="good", title="it works")
        + markup.button("bad", "judge", image="stop", answer="bad", title="it fails as the original does")
        + markup.button("skip", "judge", answer="skip", title="it cannot be judged")
    )
    return f'{name}</p>{typed}<div class="row">{run}{judge if shown.by_hand else ""}</div>'


def remaining(shown: Bisection) -> str:
    """What may still be the cause, and what is ruled out."""
    space, left, result = shown.search.space, shown.search.step.candidates, shown.result
    if isinstance(space, RangeSpace):
        if not left or result is not None:
            return ""
        first, last = (markup.text(str(one)[:12]) for one in (left[0], left[-1]))
        among = (
            f"among {markup.text(space.name)} {first} to {last}"
            if len(left) > 1
            else f"{markup.text(space.name)} {first}"
        )
        return f'<p>The first that fails is {among} <span class="faint">({_count(len(left), "value")})</span></p>'
    causes = {name for cause in result.causes for name in cause} if result is not None else set[str]()
    possible = set(left) if result is None else set[object]()
    chips = "".join(_chip(str(one), one.name in causes, one.name in possible) for one in space.components)
    return f'<ul class="chips" aria-label="what may be the cause">{chips}</ul>'


def _chip(name: str, cause: bool, possible: bool) -> str:
    kind, word = ("bad", "cause") if cause else ("", "possible") if possible else ("out", "ruled out")
    image = markup.icon("stop" if cause else "why" if possible else "done")
    return f'<li class="{kind}">{image} <code>{markup.text(name, 80)}</code> <span class="faint">{word}</span></li>'


def probes(search: Search) -> str:
    """The probes that were made, as a table; empty if there are none."""
    if not search.trials:
        return ""
    space = search.space
    columns: tuple[str, ...] = (space.name,) if isinstance(space, RangeSpace) else ("on",)
    if not isinstance(space, RangeSpace) and len(space.names) <= _COLUMNS:
        columns = space.names
    rows = [_probe(number, one, search, columns) for number, one in enumerate(search.trials, 1)]
    reasons = [one.reason[:_REASON] if one.answer != "bad" else "" for one in search.trials]
    head = ("probe", *columns, "answer", "seconds")
    if any(reasons):
        head = (*head, "reason")
        rows = [[*row, Span(why, "faint")] for row, why in zip(rows, reasons, strict=True)]
    return as_html.html(Table("probes", head, rows, "", 200))


def _probe(number: int, one: Trial, search: Search, columns: Sequence[str]) -> list[Inline | Cell]:
    if one.probe.at is not None:
        cells = [str(one.probe.at)[:12]]
    elif columns == ("on",):
        cells = [words.named(one.probe, search)]
    else:
        cells = ["on" if name in one.probe.on else "-" for name in columns]
    image, role = _ANSWERS[one.answer]
    code = f" {one.code}" if one.code else ""
    answer = Cell((Icon(image, role), f"{words.WORDS[one.answer]}{code}"), role="wide")
    return [str(number), *cells, answer, f"{one.seconds:.1f}" if one.seconds else ""]


def result(shown: Bisection, answer: Answer | None = None) -> str:
    """What was found: in words, the smallest failing command, and its finding; empty if there is no result.

    Args:
        shown: the bisection.
        answer: to the action that writes the command; None: it has no button.
    """
    if shown.result is None:
        return ""
    first, *rest = shown.conclusion().splitlines() or [shown.result.outcome]
    more = "".join(f"<p>{markup.words(line)}</p>" for line in rest)
    smallest, finding = shown.typed() or shown.commit(), shown.finding
    command = f"<pre>{markup.words(smallest, 2000)}</pre>" if smallest else ""
    write = ""
    if answer is not None and shown.typed():
        write = f'<div class="row">{markup.button("write repro.sh", "write")}{answers.html(answer)}</div>'
    found = ""
    if finding is not None and shown.result.outcome == "found":
        found = card.finding_html(Finding.from_json(finding))
    return f'<div class="summary"><p>{markup.words(first)}</p></div>{more}{command}{write}{found}'


def still(shown: Bisection) -> str:
    """A bisection without its controls, as ``Bisection`` shows itself."""
    found = result(shown) or f"<p>{_count(len(shown.search.trials), 'probe')} done, about {shown.left} to go</p>"
    return f"{_head(shown.title, code=True)}{found}{remaining(shown)}{probes(shown.search)}"


def _head(title: str, *, code: bool = False) -> str:
    kind = "mono" if code else "faint"
    return f'<div class="row head"><b>Bisection</b> <span class="{kind}">{markup.words(title, 300)}</span></div>'


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
