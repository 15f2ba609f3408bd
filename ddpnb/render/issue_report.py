"""A diagnosis as Markdown, for an issue or a chat: without secrets, names of users and machines, and homes."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from ddpnb.model.findings import Diagnosis, Finding
from ddpnb.render import card, parting
from ddpnb.render.identities import Identities
from ddpnb.render.places import evidence, file_names, places
from ddpnb.render.secrets import Secrets
from ddpnb.render.text import relative
from ddpnb.texts import printable

_TICKS = "```"


def markdown(diagnosis: Diagnosis, findings: Sequence[Finding] | None = None) -> str:
    """The findings as Markdown, masked as the bundle of ``ddpnb doctor`` is.

    Args:
        diagnosis: of a run.
        findings: those to report; None: all.
    """
    chosen = diagnosis.findings if findings is None else findings
    parts = [f"**ddpnb: {diagnosis.outcome}** on {diagnosis.world_size} ranks"]
    new = parting.first_shown(chosen)
    parts += [_section(finding, parted=number in new) for number, finding in enumerate(chosen)]
    if diagnosis.notes:
        parts.append("\n".join(["What is not known:", "", *(f"- {_plain(note)}" for note in diagnosis.notes)]))
    text = "\n\n".join(parts)
    users = [os.environ[name] for name in ("USER", "LOGNAME") if os.environ.get(name)]
    identities = Identities([platform.node()], users, [os.path.expanduser("~")])
    masked = Secrets(os.environ).mask(text)
    identities.learn(masked)
    return identities.mask(masked)


def _section(finding: Finding, *, parted: bool) -> str:
    named = file_names(finding)
    lines = [f"### {finding.code} {finding.name} ({finding.severity})", "", _plain(named(finding.summary)), ""]
    if parted and finding.parting is not None:
        lines += [*parting.markdown(finding.parting, lambda words: _plain(named(words))), ""]
    lines += [f"- {_plain(named(one))}" for one in evidence(finding)]
    lines += [f"- {one}" for one in places(finding, lambda site: f"`{_plain(named(str(site))).replace('`', '')}`")]
    if finding.hint is not None:
        lines += ["", f"Possible cause: {_plain(named(str(finding.hint)))}"]
    if certainty := card.how_certain(finding):
        lines += ["", certainty]
    if finding.remedy:
        lines += ["", f"Fix: {_plain(named(finding.remedy))}"]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """One line that opens no block and no HTML, whatever a rank has put into it."""
    return (
        " ".join(relative(printable(text)).split()).replace(_TICKS, "'''").replace("<", "&lt;").replace("@", "@\u200b")
    )
