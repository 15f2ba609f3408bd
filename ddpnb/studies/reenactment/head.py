"""The head of the dashboard of a Recording, and the result of its re-enactment."""

from __future__ import annotations

from ddpnb.render import answers, controls, markup
from ddpnb.render.answers import Answer
from ddpnb.studies.reenactment import words as reenactment
from ddpnb.studies.reenactment.agreement import Agreement
from ddpnb.studies.reenactment.plan import Plan


def head(
    read: str,
    *,
    script: str,
    actions: bool,
    live: bool,
    answer: Answer = Answer(),  # noqa: B008  # frozen
) -> str:
    """What was read, and the buttons.

    Args:
        read: a sentence; empty: ddpnb has recorded it itself.
        script: the name of the file to export to.
        actions: there is something to re-enact and to export.
        live: it was re-enacted, and the ranks live.
        answer: to the last action.
    """
    kind = "Reported hang" if read else "Recording"
    title = f'<div class="row head"><b>{kind}</b><span class="space"></span>{controls.KEYS}</div>' + (
        f'<p class="faint">{markup.text(read)}</p>' if read else ""
    )
    free = not answer.busy
    end = markup.button("end the live ranks", "end", image="gone", enabled=free) if live else ""
    again = "re-enact again" if live else "re-enact"
    form = markup.form(
        "export",
        markup.button(again, "reenact", image="go", enabled=free, title="make the same calls on live ranks, here")
        if actions
        else "",
        end,
        '<span class="space"></span>',
        markup.field("script", "script", script, size=16) if actions else "",
        controls.run_buttons(controls.Head(kind, read, "ended", ran=True, busy=answer.busy)),
        below=True,
    )
    return title + form + answers.html(answer)


def result(plan: Plan, agreement: Agreement | None, script: str) -> str:
    """Whether the live ranks give the finding of the recording, which ranks they stand for, and what they run.

    Args:
        plan: of the re-enactment.
        agreement: None: not known yet.
        script: its text.
    """
    image, role = ("compute", "note") if agreement is None else ("done", "ok") if agreement.same else ("why", "warning")
    text = markup.text(reenactment.headline(plan, agreement))
    shown = f'<pre tabindex="0" aria-label="script">{markup.text(script)}</pre>'
    return (
        f'<h2>Re-enactment</h2><div class="{role}" role="status">{markup.icon(image)} <b>{text}</b></div>'
        + markup.items(map(markup.text, reenactment.notes(plan, agreement)), "notes")
        + markup.folded("The script that the live ranks run", shown)
    )
