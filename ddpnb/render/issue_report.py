"""A diagnosis as Markdown, for an issue or a chat: without secrets, names of users and machines, and homes."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from ddpnb.model.findings import Diagnosis, Finding
from ddpnb.render import card, parting
from ddpnb.render.identities import Identities
from ddpnb.render.secrets import Secrets
from ddpnb.render.text import relative
from ddpnb.texts import printable

_PLACES = 8
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
    lines = [f"### {finding.code} {finding.name} ({finding.severity})", "", _plain(finding.summary), ""]
    if parted and finding.parting is not None:
        lines += [*parting.markdown(finding.parting, _plain), ""]
    lines += [f"- {_plain(one)}" for one in finding.evidence]
    lines += [f"- rank {rank}: `{_plain(str(site)).replace('`', '')}`" for rank, site in finding.where[:_PLACES]]
    if len(finding.where) > _PLACES:
        lines.append(f"- and {len(finding.where) - _PLACES} more places")
    if finding.hint is not None:
        lines += ["", f"Possible cause: {_plain(str(finding.hint))}"]
    if certainty := card.how_certain(finding):
        lines += ["", certainty]
    if finding.remedy:
        lines += ["", f"Fix: {_plain(finding.remedy)}"]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """One line that opens no block and no HTML, whatever a rank has put into it."""
    return (
        " ".join(relative(printable(text)).split()).replace(_TICKS, "'''").replace("<", "&lt;").replace("@", "@\u200b")
    )
