"""Pages of the public names, grouped by what one does with them. Sphinx fills them from the docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import ddpnb


@dataclass(frozen=True)
class Group:
    """A page: its file, its title, what the names have in common, and the names in order."""

    file: str
    title: str
    about: str
    names: tuple[str, ...]


def _group(file: str, title: str, about: str, names: str) -> Group:
    return Group(file, title, about, tuple(names.split()))


GROUPS = (
    _group("world", "Launch ranks", "Live ranks in a notebook or script, and what is done with them.", "launch World"),
    _group(
        "runs", "Runs",
        "What `world.run()` and `world.execute()` return, and what is seen of a run.",
        "Run Ending TimeAccount Curves RankCurves compare_runs RunComparison",
    ),
    _group(
        "jobs", "Jobs that run elsewhere",
        "Ranks that another launcher started: with `ddpnb run -- COMMAND`, or without ddpnb.",
        "attach jobs Job FoundJob Debugging",
    ),
    _group(
        "looking", "Look at ranks",
        "What `status()`, `evaluate()`, `diff()`, `tensor()`, `compare()`, `stacks()`, `lines()` and `partings()` return.",
        "WorldStatus RankStatus RankState Evaluations Evaluation FrameDiff TensorByRank TensorFacts ValueDifference "
        "Comparison TensorDifference stacks Stacks lines SourceLines partings Partings Parting Way Harmless",
    ),
    _group(
        "control", "Start, hold, inject, release",
        "What the methods that control ranks take and return.",
        "Startup StartupState StepState Hold Holding same Fault Injection Freed Restarted",
    ),
    _group(
        "diagnosis", "Recordings and diagnoses",
        "A recording is what is known of all ranks at one moment; a diagnosis is what follows from it.",
        "load Recording diagnose Diagnosis Finding FindingType Hint explain Explanation",
    ),
    _group(
        "reenacting", "Re-enact and export",
        "The calls of a recording, made again by live ranks or written as a script.",
        "reenact Reenactment export",
    ),
    _group(
        "bisection", "Bisection",
        "The search for what makes a program fail.",
        "bisect Bisection Search SearchResult Probe Trial Step component",
    ),
    _group("notebook", "In a notebook", "The dashboard, and the guide of a bisection.", "show guide Panel"),
    _group("doctor", "Doctor", "A check of the machine without training code.", "doctor Checkup Check"),
    _group("scripts", "In a training script", "What a script may call, with and without ddpnb.", "checkpoint"),
    _group(
        "errors", "Exceptions",
        "Each says what happened and what to do next.",
        "DdpnbError UsageError ScriptNotFound DeviceError LaunchError WorldError CannotWrite Released",
    ),
)  # fmt: skip
#: their methods come from a base class that is not public
_INHERITING = ("World", "Job")
#: their members say nothing that the class does not
_WITHOUT_MEMBERS = tuple(name for group in GROUPS if group.file == "errors" for name in group.names)


def written() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page."""
    parts = ["# Python API\n\nAll of these are names of `ddpnb`; importing it imports none of them until it is used.\n"]
    for group in GROUPS:
        table = "".join(f"| [](#ddpnb.{name}) | {_summary(name)} |\n" for name in group.names)
        parts.append(
            f"## {group.title}\n\n{group.about} [More](../api/{group.file}.md).\n\n| name | what it is |\n|---|---|\n{table}"
        )
    tree = "".join(f"{group.file}\n" for group in GROUPS)
    yield "api/index.md", "\n".join(parts) + f"\n```{{toctree}}\n:hidden:\n\n{tree}```\n"
    for group in GROUPS:
        blocks = "\n".join(map(_directive, group.names))
        yield f"api/{group.file}.md", f"# {group.title}\n\n{group.about}\n\n```{{eval-rst}}\n{blocks}\n```\n"


def _directive(name: str) -> str:
    if not inspect.isclass(getattr(ddpnb, name)):
        return f".. autofunction:: ddpnb.{name}\n"
    options = "" if name in _WITHOUT_MEMBERS else "   :members:\n"
    options += "   :inherited-members:\n" if name in _INHERITING else ""
    options += "   :show-inheritance:\n" if name in _WITHOUT_MEMBERS else ""
    # Without parentheses Sphinx fails at the constructor of a class that is a dict.
    signature = "()" if issubclass(getattr(ddpnb, name), dict) else ""
    return f".. autoclass:: ddpnb.{name}{signature}\n{options}"


def _summary(name: str) -> str:
    first = (inspect.getdoc(getattr(ddpnb, name)) or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("``", "`").replace("|", "\\|")
