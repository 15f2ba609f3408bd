"""The scripts of the scoreboard and what each must give, as its own first lines say."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
_FIELD = re.compile(r"#\s*(expect|also|ranks|culprits|outcome|plain|options|env|patience|needs)\s*:\s*(.*?)\s*$")


@dataclass
class Case:
    """One script: the finding that it must give, by whom, in which lines."""

    path: Path
    expect: str = "none"
    also: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=lambda: [2, 4])
    culprits: str = "any"
    outcome: str = "any"
    plain: str = "?"
    fence: str = "raise"
    environment: dict[str, str] = field(default_factory=dict)
    patience: float = 3.0
    needs: str = ""  # what the machine must allow: ``memory-group``
    lines: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.path.stem

    def culprits_of(self, n: int) -> set[int] | None:
        """The ranks that must be named in a world of ``n``; None if any will do."""
        if self.culprits == "any":
            return None
        value = eval(self.culprits, {"__builtins__": {}}, {"n": n, "range": range, "list": list, "set": set})
        return {value} if isinstance(value, int) else set(value)


def read(path: Path) -> Case:
    case = Case(path)
    lines = path.read_text().splitlines()
    for line in lines:
        if not line.startswith("#"):
            if line.strip():
                break
            continue
        match = _FIELD.match(line)
        if match is None:
            continue
        name, value = match.groups()
        value = value.split("  ")[0].strip()
        if name == "also":
            case.also = re.findall(r"DDP\d+", value)
        elif name == "ranks":
            case.ranks = [int(number) for number in re.findall(r"\d+", value)]
        elif name == "options":
            found = re.search(r"--fence[ =](\w+)", value)
            case.fence = found.group(1) if found else case.fence
        elif name == "env":
            key, _, text = value.partition("=")
            case.environment[key.strip()] = text.strip()
        elif name == "patience":
            case.patience = float(value)
        elif name == "expect":
            case.expect = value.split()[0]
        else:
            setattr(case, name, value)
    case.lines = {number for number, line in enumerate(lines, 1) if "# <- culprit" in line}
    return case


def _possible(case: Case) -> bool:
    if not case.needs:
        return True
    group = "/sys/fs/cgroup/memory" if Path("/sys/fs/cgroup/memory").is_dir() else "/sys/fs/cgroup"
    trial = Path(group, "ddpnb-trial")
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        print(f"left out: {case.name}, since this machine allows no control groups to be made", file=sys.stderr)
        return False
    return True


def cases(prefixes: list[str]) -> list[Case]:
    """All cases whose name begins with one of these, or all."""
    found = [case for path in sorted(SCRIPTS.glob("*.py")) if _possible(case := read(path))]
    return [case for case in found if not prefixes or any(case.name.startswith(prefix) for prefix in prefixes)]
