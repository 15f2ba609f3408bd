"""What Sphinx does not read by itself in our docstrings and classes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from typing import Any

_RAISES = re.compile(r"^(\s+)(\w+(?:, \w+)+): (.+)$")
#: classes that users construct; all others are returned by functions and methods
_CONSTRUCTED = ("Fault", "Hold")


def connect(app: Any) -> None:
    """Register with Sphinx: before napoleon, which has the priority 500."""
    app.connect("autodoc-process-docstring", process, priority=100)
    app.connect("autodoc-process-signature", signature)


def process(_app: Any, what: str, _name: str, subject: Any, _options: Any, lines: list[str]) -> None:
    """Change the lines of a docstring in place."""
    lines[:] = split_raises(lines)
    if what in ("property", "attribute"):
        lines[:] = ["..", "", *lines]  # else napoleon takes what is before a colon in the first line for a type
    if what == "class" and dataclasses.is_dataclass(subject) and isinstance(subject, type):
        lines[:] = [*attributes(subject), *lines] if not lines else _before_example(lines, attributes(subject))


def signature(_app: Any, what: str, name: str, _subject: Any, _options: Any, given: str, returned: str) -> Any:
    """No constructor where users do not call it."""
    if what == "class" and name.rpartition(".")[2] not in _CONSTRUCTED:
        return "", None
    return given, returned


def split_raises(lines: list[str]) -> list[str]:
    """``UsageError, DeviceError: text`` under ``Raises:`` as an entry for each exception."""
    result: list[str] = []
    inside = False
    for line in lines:
        inside = line == "Raises:" or (inside and (not line.strip() or line.startswith(" ")))
        match = _RAISES.match(line) if inside else None
        if match is None:
            result.append(line)
        else:
            result += [f"{match[1]}{kind}: {match[3]}" for kind in match[2].split(", ")]
    return result


def attributes(subject: type) -> list[str]:
    """Public fields of a dataclass as a section for napoleon, each with the comment beside or above it."""
    comments = field_comments(subject)
    entries = [
        f"    {field.name} ({_kind(field)}): {comments.get(field.name, '')}".rstrip()
        for field in dataclasses.fields(subject)
        if not field.name.startswith("_")
    ]
    return ["Attributes:", *entries, ""] if entries else []


def field_comments(subject: type) -> dict[str, str]:
    """Field -> what its comment says: that on its own line, else the lines above it."""
    source = textwrap.dedent(inspect.getsource(subject))
    lines = source.splitlines()
    (tree,) = ast.parse(source).body
    found: dict[str, str] = {}
    for node in tree.body if isinstance(tree, ast.ClassDef) else ():
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        _, sign, beside = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :].partition("#")
        above: list[str] = []
        place = node.lineno - 2
        while not sign and lines[place].lstrip().startswith("#"):
            above.insert(0, lines[place].lstrip("# :"))
            place -= 1
        text = (beside if sign else " ".join(above)).strip().removeprefix(":").strip()
        if text:
            found[node.target.id] = text[:1].upper() + text[1:].rstrip(".") + "."
    return found


def _kind(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def _before_example(lines: list[str], section: list[str]) -> list[str]:
    place = lines.index("Example:") if "Example:" in lines else len(lines)
    return [*lines[:place], "", *section, *lines[place:]]
