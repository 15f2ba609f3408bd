"""The form for faults, made from their descriptions."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.calls import OPERATIONS
from ddpnb.recording.faults import KINDS, Kind
from ddpnb.render import answers, as_html, markup
from ddpnb.render.answers import Answer
from ddpnb.render.document import Paragraph, Span
from ddpnb.rules import catalogue
from ddpnb.texts import shortened

_PLACES = {
    "door": "at a collective",
    "data": "in the data",
    "model": "in the model",
    "environment": "in the environment, before start-up",
}


def faults(
    chosen: str,
    size: int,
    armed: Sequence[tuple[str, str]] = (),
    *,
    enabled: bool = True,
    answer: Answer = Answer(),  # noqa: B008  # frozen
    missed: Sequence[str] = (),
) -> str:
    """The form of one kind of fault, and the armed faults.

    Args:
        chosen: the selected kind.
        size: number of ranks.
        armed: each armed fault as text, and how often it was triggered.
        enabled: whether one can be armed.
        answer: to the actions of the form.
        missed: the faults that were not triggered in the last run, in sentences.
    """
    kind = KINDS.get(chosen) or next(iter(KINDS.values()))
    key = markup.attributes({"data-key": kind.name})
    form = (
        f'<form data-action="inject"{key}><div class="row">{_kinds(kind)}{_fields(kind)}'
        f"{markup.rank_boxes(size, chosen=[1] if size > 1 else [0])}"
        f"{markup.button('inject', 'inject', image='fault', enabled=enabled)}</div>{answers.html(answer)}</form>"
    )
    rows = (
        f'{markup.text(fault, 200)} <span class="faint">{markup.text(struck)}</span> '
        + markup.button("heal", "heal", image="heal", number=number)
        for number, (fault, struck) in enumerate(armed)
    )
    all_of_them = markup.button("heal all", "heal", image="heal") if armed else ""
    listed = markup.items(rows, "armed faults") + all_of_them
    last = [Paragraph("Last run: ", shortened(one, 400), kind="warning") for one in missed]
    return form + as_html.html(_described(kind), *last) + listed


def _described(kind: Kind) -> Paragraph:
    """What it does, and the finding that it gives."""
    finding = Span(f"{kind.finding} {catalogue.page(kind.finding).name}", strong=True)
    also = f" (or {', '.join(kind.also)})" if kind.also else ""
    lasts = (", as long as it lasts (button ", Span("why", strong=True), ")") if kind.passes else ()
    needs = f". Needs {kind.needs}: without it, the fault has no effect." if kind.needs else "."
    return Paragraph(f"{kind.what[:1].upper() + kind.what[1:]}. Expected finding: ", finding, also, *lasts, needs)


def _kinds(chosen: Kind) -> str:
    groups = {
        words: [
            (kind.name, kind.name, f"{kind.what} {kind.finding} {catalogue.page(kind.finding).name}")
            for kind in KINDS.values()
            if kind.place == place
        ]
        for place, words in _PLACES.items()
    }
    return markup.grouped("fault", "kind", groups, chosen.name, change="kind")


def _fields(kind: Kind) -> str:
    """The fields of the kind: its parameters, then its conditions."""
    parts = [
        (markup.number if isinstance(parameter.default, (int, float)) else markup.field)(
            f"{parameter.name}: {parameter.what}", f"value:{parameter.name}", parameter.default
        )
        for parameter in kind.parameters
    ]
    if kind.place == "door":
        calls = [("", "any"), *((op, op) for op in kind.ops or OPERATIONS)]
        parts.append(markup.choice("call", "op", calls, str(kind.begins.get("op", ""))))
        parts.append(markup.number("number", "seq", least=1, hint="any"))
    if kind.place != "environment":
        parts.append(markup.number("after steps", "step", kind.begins.get("step", ""), least=0, hint="0"))
    return "".join(parts)
