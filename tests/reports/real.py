"""The reports of real runs in ``notebooks/reports``, and what each shows."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "notebooks" / "reports"


@dataclass(frozen=True)
class Reported:
    """What a report shows first; ``lines`` are those at which ranks are named, by script."""

    name: str
    code: str
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    op: str | None = None
    seq: int = 0
    lines: tuple[str, ...] = ()


REPORTS = (
    Reported("flight-recorder", "DDP306", (1, 3), (0, 2), "all_reduce", 23, ("multitask.py:29",)),
    Reported("torchrun.log", "DDP301", (1,), (0, 2, 3), None, 0, ("finetune.py:29",)),
    Reported("stacks", "DDP313", (1, 2), (0,), None, 0, ("count_words.py:45", "count_words.py:47")),
)


def found(name, diagnosis):
    """The same of a diagnosis."""
    assert diagnosis.outcome == "hang"
    first = diagnosis.errors[0]
    call = first.collective
    lines = {f"{Path(site.file).name}:{site.line}" for _, site in first.where}
    return Reported(
        name,
        first.code,
        first.culprits,
        first.waiting,
        call.op if call is not None else None,
        call.seq if call is not None else 0,
        tuple(sorted(lines)),
    )


def generator():
    """``make.py`` of that folder, as a module."""
    spec = importlib.util.spec_from_file_location("make_reports", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
