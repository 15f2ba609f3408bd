"""A page for each framework, from the table in ``docs/frameworks.md`` and the programs of the matrix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddpnb.rules.catalogue import page

TABLE = "docs/frameworks.md"
_PROGRAMS = "tests/matrix/programs"
#: title of a page -> the programs of the matrix that belong to it, in the order of the table's rows
PAGES = {
    "Lightning": ("lightning", "lightning_torchrun"),
    "Lightning Fabric": ("lightning_fabric", "lightning_fabric_python"),
    "accelerate": ("accelerate",),
    "transformers": ("transformers_trainer",),
    "torchvision": ("torchvision_references",),
    "timm": ("timm",),
    "nanoGPT": ("nanogpt",),
    "PyTorch Geometric": ("pyg",),
    "FSDP2": ("fsdp2",),
    "DTensor": ("tensor_parallel",),
    "Distributed checkpoint": ("distributed_checkpoint",),
    "Pipeline parallel": ("pipeline",),
    "Hydra": ("hydra",),
    "mp.spawn": ("mp_spawn",),
    "A list of Process": ("mp_processes",),
    "torchft": ("torchft",),
    "RPC": ("rpc",),
    "A shell loop": ("shell_loop",),
}
_HEADER = re.compile(r"(?:# .*\n)+")
_DOCSTRING = re.compile(r'"""(.+?)"""', re.DOTALL)


@dataclass(frozen=True)
class Row:
    """A row of the table: cells by the name of their column, and the program that was run for it."""

    cells: dict[str, str]
    program: str


def rows(table: str) -> list[Row]:
    """The rows of the table in a Markdown text.

    Raises:
        ValueError: it has another number of rows than there are programs, or a row is not that of its program.
    """
    lines = [line for line in table.splitlines() if line.startswith("|")]
    head, _, *body = (_cells(line) for line in lines)
    programs = [name for names in PAGES.values() for name in names]
    titles = [title for title, names in PAGES.items() for _ in names]
    if len(body) != len(programs):
        raise ValueError(f"{TABLE} has {len(body)} rows, {_PROGRAMS} {len(programs)} programs: add it to PAGES")
    found = [Row(dict(zip(head, cells, strict=True)), program) for cells, program in zip(body, programs, strict=True)]
    for row, title in zip(found, titles, strict=True):
        named = row.cells["framework"].replace("`", "").replace("torch.multiprocessing", "mp")
        if not named.lower().startswith(title.lower()):
            raise ValueError(f"{TABLE}: the row {row.cells['framework']!r} does not belong to {title!r}")
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def written(root: Path) -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page."""
    by_program = {row.program: row for row in rows((root / TABLE).read_text(encoding="utf-8"))}
    for title, programs in PAGES.items():
        parts = [_part(root, by_program[program], alone=len(programs) == 1) for program in programs]
        yield f"frameworks/{name(title)}.md", f"# {title}\n\n" + "\n\n".join(parts) + "\n"


def shortened(text: str) -> str:
    """The page of all frameworks: its table has a row for each page, which has the rest."""
    table = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("|"))
    by_program = {row.program: row.cells for row in rows(table)}
    short = "".join(
        f"| [{title}]({name(title)}.md) | "
        + "<br>".join(by_program[program]["usual command"] for program in programs)
        + " | "
        + "<br>".join(by_program[program]["mistake"] for program in programs)
        + " |\n"
        for title, programs in PAGES.items()
    )
    pages = "".join(f"{name(title)}\n" for title in PAGES)
    tree = f"\n```{{toctree}}\n:hidden:\n\n{pages}```\n"
    return text.replace(table, f"| | usual command | mistake |\n|---|---|---|\n{short}") + tree


def name(title: str) -> str:
    """The name of the page: ``pytorch-geometric``."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower())


def _part(root: Path, row: Row, *, alone: bool) -> str:
    healthy, broken = (
        _HEADER.sub("", (root / _PROGRAMS / row.program / f"{kind}.py").read_text(encoding="utf-8"), count=1)
        for kind in ("healthy", "broken")
    )
    cells = row.cells
    level = "##" if alone else "###"
    heading = "" if alone else f"## {cells['framework']}: {cells['usual command']}\n\n"
    code = re.match(r"DDP\d{3}", cells["finding"])
    if code is None:
        raise ValueError(f"{TABLE}: {cells['finding']!r} names no finding")
    fix = f" Its fix names {cells['fix names']}." if cells["fix names"] else ""
    version = f", version {cells['versions']}" if cells["versions"] and cells["versions"] != "torch" else ""
    return f"""{heading}{level} How to start it

Put the prefix before the command that you type today:

```sh
{with_prefix(cells["usual command"])}
```

{level} What was tried

{cells["framework"]}{version}, on two ranks with gloo. Healthy program: {_healthy(cells["healthy"])}

| case | what is seen |
|---|---|
| the mistake | {cells["mistake"]} |
| without ddpnb | {cells["without ddpnb"]} |
| with ddpnb | {_finding(cells["finding"], code[0])} |

{_summary(broken)}{fix}

{level} The mistake

```diff
{_difference(healthy, broken)}
```

{level} The healthy program

```python
{healthy.strip()}
```"""


def with_prefix(command: str) -> str:
    """A usual command of the table (``mp.spawn`` may stand behind it) behind the prefix."""
    match = re.search(r"`([^`]+)`", command)
    if match is None:
        raise ValueError(f"{TABLE}: {command!r} has no command")
    typed = match[1]
    return f"ddpnb run -- sh -c '{typed}'" if ";" in typed else f"ddpnb run -- {typed}"


def _healthy(cell: str) -> str:
    same = "the same losses and the same exit status with and without the prefix, and no error is found."
    return same if cell == "equal" else f"{cell}."


def _finding(cell: str, code: str) -> str:
    return cell.replace(code, f"[{code} {page(code).name}](../findings/{code}.md)", 1)


def _summary(program: str) -> str:
    match = _DOCSTRING.search(program)
    return match[1].strip() if match else ""


def _difference(healthy: str, broken: str) -> str:
    def lines(text: str) -> list[str]:
        without = _DOCSTRING.sub("", text, count=1).replace("# <- culprit", "")
        return [line.rstrip() for line in without.strip().splitlines()]

    changed = difflib.unified_diff(lines(healthy), lines(broken), "healthy.py", "broken.py", lineterm="", n=3)
    return "\n".join(changed)
