"""The comments at the beginning of the script: what it re-enacts, how to run it, what happens."""

from __future__ import annotations

import textwrap

from ddpnb.recording import phrases
from ddpnb.recording.findings import Finding
from ddpnb.studies.reenactment.expressions import base_name
from ddpnb.studies.reenactment.plan import Part, Plan
from ddpnb.texts import comment, shell_word

# How every script begins. Python takes its encoding from the first two lines: they hold no text of a recording or of a name.
FIRST_LINES = "# -*- coding: ascii -*-\n# Re-enacts recorded calls. It was made by ddpnb, and needs torch alone.\n"
_WIDE = 118
_LONGEST = 600  # characters of a comment


def header(plan: Plan, name: str, timeout_s: int, file: str) -> list[str]:
    """The lines after the first two, as comments.

    Args:
        plan: who calls what.
        name: of the report.
        timeout_s: after which the calls give up.
        file: the name of the script.
    """
    found, command = plan.expected, comment(shell_word(file), _LONGEST)
    lines = [f"# The calls are those of {comment(name)}."]
    if found is not None:
        lines += [
            "#",
            *_wrapped(f"{comment(_summary(plan, found), _LONGEST)}  [{comment(f'{found.code} {found.name}')}]", "#   "),
        ]
    lines += ["#", f"# Run it:    torchrun --nproc-per-node {plan.size} {command}"]
    lines += [f"# Diagnose:  ddpnb run -n {plan.size} {command}", "#"]
    for text in _happens(plan, timeout_s):
        lines += _wrapped(comment(text), "# ")
    if plan.size != plan.world_size:
        lines += ["#", f"# {plan.size} ranks stand for {plan.world_size}:"]
        for others, parts in alike(plan):
            own = phrases.ranks(part.original for part in parts)
            lines += _wrapped(f"{phrases.ranks(part.rank for part in parts)}: {own}{others}", "#   ")
    lines += ["#"] if plan.notes or plan.left_out else []
    for text in (*plan.notes, *(f"Not re-enacted: {text}" for text in plan.left_out)):
        lines += _wrapped(comment(text, _LONGEST), "# ")
    return lines


def instead(part: Part) -> str:
    """What a rank does after its calls, from the verb on."""
    words = {
        "left": "ends",
        "raised": "raises an exception",
        "died": "exits" if part.code >= 0 else "is killed",
        "elsewhere": "is blocked outside any collective",
        "stopped": "is stopped (SIGSTOP)",
        "computing": "computes",
        "unknown": "makes no further call; what it did instead is not known",
        "blocked": "waits",
    }
    return f"{words[part.how]} before init_process_group" if part.absent else words[part.how]


def _happens(plan: Plan, timeout_s: int) -> list[str]:
    """What a reader will see."""
    waiting: dict[str, list[int]] = {}
    for part in plan.parts:
        if part.how == "blocked":
            waiting.setdefault(_waits_in(part), []).append(part.rank)
    happens = [
        f"{phrases.ranks(ranks, True)} {phrases.verb(ranks, 'waits', 'wait')} in {call}."
        for call, ranks in waiting.items()
    ]
    happens += [f"Rank {part.rank} {instead(part)}." for part in plan.parts if part.how != "blocked"]
    if plan.completes:
        return [*happens, "No rank waits for another one: the script completes."]
    return [*happens, f"The calls give up after {timeout_s} s."] if waiting else happens


def _summary(plan: Plan, found: Finding) -> str:
    """The finding in one sentence, with the names of files and without their folders."""
    sites = [site for _, site in found.where] + [step.site for part in plan.parts for step in part.steps]
    text = found.summary
    for file in sorted({site.file for site in sites}, key=len, reverse=True):
        text = text.replace(f"{file}:", f"{base_name(file)}:") if file else text
    return text


def _waits_in(part: Part) -> str:
    if not part.steps:
        return "init_process_group"
    return part.steps[part.waits_in if part.waits_in is not None else -1].title


def alike(plan: Plan) -> list[tuple[str, list[Part]]]:
    """The live ranks that stand for the same ranks, with what is said of these."""
    found: dict[tuple[int, ...], tuple[str, list[Part]]] = {}
    for part in plan.parts:
        many = len(part.stands_for) > 1
        text = f", of {phrases.ranks(part.stands_for)}, which do the same" if many else ""
        found.setdefault(part.stands_for, (text, []))[1].append(part)
    return list(found.values())


def _wrapped(text: str, indent: str) -> list[str]:
    """A comment of several lines."""
    return textwrap.wrap(text, _WIDE, initial_indent=indent, subsequent_indent=indent)
