"""Pitfalls: example training scripts with one bug each, the fix, the cause and what to look at.

One folder per pitfall: ``broken.py``, ``fix.patch`` and ``story.md``. Each is a test: the broken script
gives its finding, the fixed one gives none.
"""

from __future__ import annotations

import atexit
import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ddpnb.errors import UsageError

#: how long it takes to see why: a minute, some, or one must know how torch does it
DIFFICULTIES = ("easy", "medium", "hard")
_HERE = Path(__file__).parent
_CHAPTERS = (3, 4, 5, 6, 7, 1, 2)  # in the order in which they are offered
_FACT = re.compile(r"(\w+): (.+)")
_HUNK = re.compile(r"@@ -(\d+),?\d* \+\d+,?\d* @@")


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One pitfall.

    ``finding`` is the code that the broken script must give, ``difficulty`` how long it takes to see why (``easy``: a minute),
    ``culprits`` the ranks that it names (``none``: no recorded
    fact tells which, and the ``sides`` are given), ``line`` a part of a source line that it names, ``also`` further
    codes that come with it. ``patience`` and ``fence`` are the settings of a world for it; ``needs`` names a
    requirement that not every machine meets (``memory-group``: root, and control groups for memory).
    """

    name: str
    title: str
    finding: str
    culprits: tuple[int, ...]
    outcome: str
    why: str
    look: str
    fix: str
    ranks: int = 2
    line: str = ""
    also: tuple[str, ...] = ()
    patience: float = 10.0
    fence: str = "raise"
    needs: str = ""
    difficulty: str = "medium"
    sides: tuple[tuple[int, ...], ...] = ()

    @property
    def chapter(self) -> int:
        """The chapter of its finding: 3, collectives, for DDP301."""
        return int(self.finding[3])

    @property
    def broken(self) -> Path:
        """The broken script."""
        return _HERE / self.name / "broken.py"

    @property
    def fixed(self) -> Path:
        """The same script, fixed; it is written into a temporary folder."""
        path = _folder() / self.name / "fixed.py"
        path.parent.mkdir(exist_ok=True)
        lines = _patched(self.broken.read_text(encoding="utf-8").splitlines(), self.difference.splitlines())
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    @property
    def lacking(self) -> str:
        """What this machine lacks to run it; empty if it can be run."""
        if self.needs != "memory-group":
            return ""
        memory = Path("/sys/fs/cgroup/memory")
        trial = (memory if memory.is_dir() else memory.parent) / f"ddpnb-trial-{os.getpid()}"
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError:
            return "it creates a control group for memory, which requires root and a machine that allows it"
        return ""

    @property
    def difference(self) -> str:
        """What the fix changes, as a unified diff."""
        return (_HERE / self.name / "fix.patch").read_text(encoding="utf-8").rstrip("\n")

    def __str__(self) -> str:
        parts = [f"{self.title}  [{self.finding}]", self.why, f"Look at:\n{self.look}", f"Fix: {self.fix}"]
        return "\n\n".join(parts)

    __repr__ = __str__


@cache
def names() -> tuple[str, ...]:
    """The names of all pitfalls."""
    return tuple(sorted(path.parent.name for path in _HERE.glob("*/story.md")))


@cache
def get(name: str) -> Pitfall:
    """The pitfall of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in names():
        near = difflib.get_close_matches(name, names(), 3, 0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "ddpnb pitfalls list shows them all."
        raise UsageError(f"there is no pitfall {name!r}.", hint)
    return _parsed(name, (_HERE / name / "story.md").read_text(encoding="utf-8"))


def all_of(code: str = "") -> list[Pitfall]:
    """All pitfalls, or those that show one finding, in the order of their findings."""
    found = [get(name) for name in names()]
    return sorted((one for one in found if code in ("", one.finding)), key=lambda one: (one.finding, one.name))


def by_chapter(words: str = "") -> dict[int, list[Pitfall]]:
    """The pitfalls of each chapter, those that are seen at once first; collectives, with which one begins, before all others.

    Args:
        words: that all occur in its name, title, finding, difficulty, reason or fix; empty: every pitfall.
    """
    wanted = words.lower().split()
    found: dict[int, list[Pitfall]] = {chapter: [] for chapter in _CHAPTERS}
    for one in sorted(all_of(), key=lambda one: DIFFICULTIES.index(one.difficulty)):
        text = f"{one.name} {one.title} {one.finding} {one.difficulty} {one.why} {one.fix}".lower()
        if all(word in text for word in wanted):
            found[one.chapter].append(one)
    return {chapter: those for chapter, those in found.items() if those}


@cache
def _folder() -> Path:
    made = tempfile.mkdtemp(prefix="ddpnb-pitfalls-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def _patched(lines: Sequence[str], difference: Iterable[str]) -> list[str]:
    """These lines after a unified diff, of which each hunk has lines around it."""
    done, at = list[str](), None
    for change in difference:
        if hunk := _HUNK.match(change):
            done += lines[at or 0 : int(hunk[1]) - 1]
            at = int(hunk[1]) - 1
        elif at is not None and change.startswith("+"):
            done.append(change[1:])
        elif at is not None:
            done += [] if change.startswith("-") else [lines[at]]
            at += 1
    return [*done, *lines[at or 0 :]]


def _parsed(name: str, text: str) -> Pitfall:
    head, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, rest = head.partition("\n")
    facts = {match[1]: match[2].strip() for line in rest.splitlines() if (match := _FACT.fullmatch(line.strip()))}
    told = {title.strip(): body.strip() for title, _, body in (one.partition("\n") for one in sections)}
    culprits = facts.get("culprits", "")
    ranks = int(facts.get("ranks", "2"))
    return Pitfall(
        name=name,
        title=title.removeprefix("#").strip(),
        finding=facts["finding"],
        culprits=tuple(range(ranks)) if culprits == "all" else tuple(int(c) for c in culprits.split() if c != "none"),
        outcome=facts["outcome"],
        why=told["Why"],
        look=told["Look at"],
        fix=told["Fix"],
        ranks=ranks,
        line=facts.get("line", ""),
        also=tuple(facts.get("also", "").split()),
        patience=float(facts.get("patience", "10")),
        fence=facts.get("fence", "raise"),
        needs=facts.get("needs", ""),
        difficulty=facts["difficulty"],
        sides=tuple((rank,) for rank in range(ranks)) if culprits == "none" else (),
    )
