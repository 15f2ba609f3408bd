"""What plain English excludes: old idiom of this project, and verbs that do not fit the number of ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# What is not said, and what is said instead.
IDIOM = {
    r"mend(?:s|ed|ing)?": "fix",
    r"anew": "again",
    r"for ever": "forever",
    r"whoever": "the noun: the caller, the process, the rank",
    r"of (?:its|their) own making": "what it made",
    r"by (?:its|their) own hand": "itself",
    r"ha(?:s|ve|d) not (?:yet )?come": "is missing, has not called",
    r"for want of": "without",
    r"(?:go|goes|went|gone) on": "continue",
    r"stands? in(?! for)": "is in, is blocked in",
    r"stands? still": "is blocked, is stalled",
    r"otherwise than": "differently from",
    r"as if all": "what happened",
    r"ddpnb not run there": "not tested",
    r"(?<!`)told(?! apart)": "reported, given, notified",
    r"ma(?:kes|king) (?:a|no) calls?": "call, issue",
    r"struck": "triggered",
    r"at (?:its|their) prompt": "idle",
    r"ended well|went well|goes well": "succeeded",
    r"c[ao]mes? to be\b": "is created",
    r"knocks?": "retries",
    r"ha(?:s|ve) hands on": "controls",
}
_IDIOM = re.compile(rf"\b(?:{'|'.join(IDIOM)})\b", re.IGNORECASE)

_PLURAL = r"ranks \d[\d, -]*(?:and \d+(?: more)?)?"
_SINGULAR_VERB = r"(?:is|was|has|does|waits|calls|runs|raises|uses|holds|exits)"
# In "the value on ranks 0 and 1 is 3" the ranks are no subject.
_SUBJECT = "".join(f"(?<!{word} )" for word in ("on", "of", "for", "by", "from", "with", "in", "to"))
_DISAGREEMENT = re.compile(
    rf"{_SUBJECT}\b{_PLURAL} {_SINGULAR_VERB}\b"
    r"|^rank \d+ (?:are|were|have|do)\b",
    re.IGNORECASE,
)
_VERB = re.compile(rf"\s{_SINGULAR_VERB}\b")
_RANKS_AND_VERB = re.compile(rf"ranks\(.*\}}\s{_SINGULAR_VERB}\b")
_COMMENT = re.compile(r"(?:^|\s)#:? (.*)", re.MULTILINE)
_WRAP = re.compile(r"\s*\n\s*(?:#:? |//+ |\* )?")
_JOINT = re.compile(r"""["'][\s\\]+[rf]*["']""")  # between two parts of one string


def idiom(text: str) -> list[str]:
    """The old idiom in a text, also over the end of a line."""
    return [match.group() for match in _IDIOM.finditer(_WRAP.sub(" ", text))]


def disagreements(text: str) -> list[str]:
    """``Ranks 0 and 1 is``, ``Rank 1 are``: sentences whose verb does not fit the number of ranks."""
    return [match.group() for match in _DISAGREEMENT.finditer(text)]


def idiom_of_module(source: str) -> list[str]:
    """The old idiom in the prose of a Python module. Most have none in the whole text, and are not parsed: that takes seconds."""
    if not idiom(_JOINT.sub("", source)):
        return []
    return [hit for text in prose(source) for hit in idiom(text)]


def prose(source: str) -> Iterator[str]:
    """Strings, docstrings and comments of a Python module. A single word may be a name."""
    yield from (node.value for node in ast.walk(ast.parse(source)) if _is_text(node) and " " in node.value)
    yield "\n".join(_COMMENT.findall(source))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def fixed_verbs(source: str) -> Iterator[str]:
    """f-strings with a singular verb right after ``phrases.ranks(...)``, which may name several."""
    for node in ast.walk(ast.parse(source)) if _RANKS_AND_VERB.search(_JOINT.sub("", source)) else ():
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for before, part, after in zip([None, *parts], parts, parts[1:]):
            names_ranks = isinstance(part, ast.FormattedValue) and re.match(
                r"(phrases\.)?ranks\(", ast.unparse(part.value)
            )
            is_subject = not _is_text(before) or re.search(rf"{_SUBJECT}$", before.value)
            if names_ranks and is_subject and _is_text(after) and _VERB.match(after.value):
                yield ast.unparse(node)


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
