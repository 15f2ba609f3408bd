"""What a re-enactment gave: whether it is the finding of the recording, and which ranks stand for which."""

from __future__ import annotations

from ddpnb.recording import phrases
from ddpnb.render import as_text
from ddpnb.render.document import Group, Items, Paragraph, Span
from ddpnb.studies.reenactment.agreement import Agreement
from ddpnb.studies.reenactment.header import alike
from ddpnb.studies.reenactment.plan import Plan

_SHOWN = 8


def headline(plan: Plan, agreement: Agreement | None) -> str:
    """The result in one sentence."""
    finding = plan.expected
    what = f"{finding.code} {finding.name}" if finding is not None else "no finding"
    if agreement is None:
        return f"re-enactment of {what}: running"
    if agreement.same:
        found = (
            f"give the finding of the recording, {what}" if finding is not None else "have no finding, as the recording"
        )
        return f"re-enacted: {plan.size} live ranks {found}"
    return f"re-enacted, with another result than the recording: {what}"


def notes(plan: Plan, agreement: Agreement | None) -> list[str]:
    """What differs, which rank stands for which, and what is missing."""
    found = list(agreement.differences) if agreement is not None else []
    if plan.size != plan.world_size:
        found.append(f"{plan.size} live ranks stand for {plan.world_size}.")
        for more, parts in alike(plan):
            live, original = ([getattr(part, name) for part in parts] for name in ("rank", "original"))
            verb = phrases.verb(live, "re-enacts", "re-enact")
            found.append(f"Live {phrases.ranks(live)} {verb} {phrases.ranks(original)}{more}.")
    found += plan.notes[:_SHOWN]
    return found + [f"Not re-enacted: {text}" for text in plan.left_out[:_SHOWN]]


def document(plan: Plan, agreement: Agreement | None) -> Group:
    """The result without the card of the live ranks."""
    role = "ok" if agreement is not None and agreement.same else "error"
    said = Items([Paragraph(note) for note in notes(plan, agreement)])
    return Group((Paragraph(Span(f"ddpnb: {headline(plan, agreement)}", role, strong=True)), said))


def summary(plan: Plan, agreement: Agreement | None, *, colour: bool = False) -> str:
    """The same as text."""
    return as_text.text(document(plan, agreement), colour=colour)
