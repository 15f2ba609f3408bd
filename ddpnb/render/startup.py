"""Start-up step by step, a row per step, a column per rank: as a document, and with buttons to continue."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.startup import STEPS, StartupState, StepState
from ddpnb.render import answers, as_html, markup
from ddpnb.render.answers import Answer
from ddpnb.render.document import Block, Cell, Drawn, Paragraph, Table
from ddpnb.render.views import startup_waits
from ddpnb.texts import shortened

_LOOKS = {"waiting": ("", "faint"), "running": ("wait", "warning"), "done": ("done", "ok"), "failed": ("gone", "error")}
_RANKS = 16
_FACTS = 12


_SYMBOLS = {"waiting": "·", "running": "… running", "done": "✓", "failed": "✗ failed"}


def document(state: StartupState) -> list[Block]:
    """The table, and what the ranks do."""
    return [_steps(state, state.world_size), Paragraph(), *map(Paragraph, startup_waits.notes(state))]


def _steps(state: StartupState, size: int) -> Table:
    head = ("step", *(f"rank {rank}" for rank in range(size)))
    rows = [(step, *(_cell(state, rank, step) for rank in range(size))) for step in STEPS]
    return Table("start-up of the ranks", head, rows, kind="")


def _cell(state: StartupState, rank: int, step: str) -> Cell:
    here = state.at(rank, step)
    image, role = _LOOKS[here.state]
    html = f"{markup.icon(image) if image else ''} {_words(state, rank, here)}"
    return Cell((Drawn(html, _took(here)),), role=f"wide {role}", hover=here.error)


def _took(step: StepState) -> str:
    symbol = _SYMBOLS[step.state]
    return symbol if step.state == "waiting" else f"{symbol} {step.seconds:.2f} s"


def startup(
    state: StartupState | None,
    size: int,
    notes: Sequence[str] = (),
    *,
    busy: bool = False,
    enabled: bool = True,
    answer: Answer = Answer(),  # noqa: B008  # frozen
) -> str:
    """The table and its buttons.

    Args:
        state: from ``control.startup``; None before start-up begins.
        size: of the world.
        notes: what the ranks are doing, in words.
        busy: a requested step has not finished.
        enabled: whether stepping is possible.
        answer: to the actions of the buttons.
    """
    if state is None:
        hint = '<p class="faint">Initialise a process group step by step, on all ranks or some, and see which rank waits for which.</p>'
        begin = markup.button("begin start-up", "begin", image="go", enabled=enabled)
        return f'{hint}<div class="row">{begin}</div>{answers.html(answer)}'
    shown = min(size, _RANKS)
    more = [Paragraph(f"first {_RANKS} of {size} ranks shown", kind="faint")] if size > _RANKS else []
    lines = as_html.html(*(Paragraph(shortened(note, 400)) for note in notes))
    return (
        f"{as_html.html(_steps(state, shown), *more)}"
        f"{_controls(state, size, busy=busy, enabled=enabled)}{answers.html(answer)}"
        f'<div aria-live="polite">{lines}</div>{_facts(state, range(shown))}'
    )


def _words(state: StartupState, rank: int, here: StepState) -> str:
    if here.state == "done":
        took = f"{here.seconds * 1000:.0f} ms" if here.seconds < 1 else markup.span(here.seconds)
        return f'<span class="unseen">done in </span>{took}'
    if here.state == "running":
        needs = startup_waits.needs(state, rank)
        words = (
            f"waits: {', '.join(map(str, sorted(needs)[:4]))}{'…' if len(needs) > 4 else ''}" if needs else "running"
        )
        return f"{words} · {markup.age(here.seconds)}"
    return "failed" if here.state == "failed" else '<span class="unseen">not begun </span>·'


def _controls(state: StartupState, size: int, *, busy: bool, enabled: bool) -> str:
    behind = state.stopped_at
    what = f"next step: {behind}" if behind is not None else "all steps are done"
    steps = enabled and behind is not None
    again = enabled and not busy
    title = f"step all{f' ({behind})' if behind else ''}"
    return markup.form(
        "step these",
        markup.button(title, "step all", image="step", enabled=steps and not busy, title=what),
        markup.button("step these ranks", "step these", enabled=steps),
        markup.rank_boxes(size, legend="ranks"),
        markup.button("run to the end", "run to the end", image="go", enabled=steps and not busy),
        markup.button("start over", "begin", image="restart", enabled=again),
        below=True,
    )


def _facts(state: StartupState, ranks: Sequence[int]) -> str:
    """Details of each step, folded."""
    tables: list[Table] = []
    for step in STEPS:
        facts_of = {rank: dict(state.at(rank, step).facts) for rank in ranks if state.at(rank, step).facts}
        names = list(dict.fromkeys(name for facts in facts_of.values() for name in facts))[:_FACTS]
        rows = [(name, *(str(facts.get(name, "")) for facts in facts_of.values())) for name in names]
        tables += [Table(f"facts of {step}", (step, *map(str, facts_of)), rows, widest=60)] if rows else []
    return markup.folded("details of the steps", as_html.html(*tables), key="facts") if tables else ""
