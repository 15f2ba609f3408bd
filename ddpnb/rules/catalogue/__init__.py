"""The catalogue of findings: one Markdown page per code, in ``pages``.

``ddpnb explain``, ``ddpnb.explain`` and the reference ``docs/findings.md`` all read these files.
Uses the standard library only, so that ranks and the command line can import it quickly.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

CHAPTERS = {
    1: "start-up",
    2: "device",
    3: "collectives",
    4: "model and gradients",
    5: "data",
    6: "checkpoints",
    7: "launch, host, logging",
}
# Shown once, not on each page.
UNTESTED = "Statements about NCCL and GPUs come from documentation and source code: ddpnb has not been run there yet."
# Heading in the file -> field of the page. The text before the first heading is ``what``.
PARTS = {
    "Symptom": "symptom",
    "Detection": "recognised",
    "Limitations": "unknown",
    "How to fix": "fix",
    "Example": "shows",
    "See also": "see_also",
}
_TITLE = re.compile(r"# (DDP\d{3}) ([a-z0-9-]+)\n\n<!-- words: (.+) -->\n")
_CODE = re.compile(r"(?:ddp[-_ ]?)?(\d{3})", re.IGNORECASE)
_SENTENCE = re.compile(r"[.:] ")


@dataclass(frozen=True, slots=True)
class Page:
    """The page of one finding. Every text is Markdown: paragraphs, lists, inline code, fenced code."""

    code: str
    name: str
    what: str  # what it is
    symptom: str  # in plain PyTorch, on gloo and on NCCL
    recognised: str  # how ddpnb detects it
    unknown: str  # limitations of the detection
    fix: str  # how to fix it
    shows: str  # the example script
    see_also: tuple[str, ...]
    words: str  # search terms, the most specific first; not shown

    @property
    def number(self) -> int:
        """The chapter's number."""
        return int(self.code[3])

    @property
    def chapter(self) -> str:
        return CHAPTERS[self.number]

    @property
    def summary(self) -> str:
        """The first sentence, up to its colon."""
        return _SENTENCE.split(self.what, maxsplit=1)[0].rstrip(".:") + "."

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Heading and text of every part after ``what``, as it is read: the fix first. Without ``see_also``."""
        fields = {field: heading for heading, field in PARTS.items() if field != "see_also"}
        return tuple((heading, getattr(self, field)) for field, heading in {"fix": fields["fix"], **fields}.items())


def read(text: str) -> Page:
    """A page from its file.

    Raises:
        ValueError: a part is missing, unknown or out of order.
    """
    title = _TITLE.match(text)
    if title is None:
        raise ValueError("a page begins with '# DDP301 its-name', then '<!-- words: search terms -->'")
    blocks = re.split(r"^## (.+)\n", text[title.end() :], flags=re.MULTILINE)
    parts = {heading: body.strip() for heading, body in zip(blocks[1::2], blocks[2::2], strict=True)}
    if list(parts) != list(PARTS) or not all(parts.values()) or not blocks[0].strip():
        raise ValueError(f"{title[1]}: a page needs the parts {', '.join(PARTS)}, in this order")
    fields = {PARTS[heading]: body for heading, body in parts.items() if heading != "See also"}
    also = tuple(re.findall(r"DDP\d{3}", parts["See also"]))
    return Page(title[1], title[2], blocks[0].strip(), see_also=also, words=title[3], **fields)


@cache
def pages() -> dict[str, Page]:
    """All pages by code, sorted."""
    folder = files("ddpnb.rules.catalogue").joinpath("pages")
    all_pages = [read(file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name.endswith(".md")]
    return {page.code: page for page in sorted(all_pages, key=lambda page: page.code)}


def codes() -> tuple[str, ...]:
    return tuple(pages())


def page(code: str) -> Page:
    """The page of a code.

    Raises:
        KeyError: there is no such code.
    """
    return pages()[code]


# -- finding a page


def resolve(words: str | int) -> str | None:
    """The code for ``DDP301``, ``ddp301``, ``301`` or ``collective-missing``; None if there is none."""
    text = str(words).strip()
    number = _CODE.fullmatch(text)
    if number is not None:
        code = f"DDP{number[1]}"
        return code if code in pages() else None
    name = re.sub(r"[\s_]+", "-", text.lower())
    return next((page.code for page in pages().values() if page.name == name), None)


def looks_like_code(words: str) -> bool:
    """Whether the text has the form of a code, existing or not."""
    return re.fullmatch(r"(?:ddp[-_ ]?)?\d{1,6}|ddp\d\w{0,8}", words.strip(), re.IGNORECASE) is not None


def nearest(words: str, limit: int = 3) -> tuple[str, ...]:
    """Existing codes close to a code or name that does not exist."""
    text = words.strip().lower()
    digits = re.sub(r"\D", "", text)
    if looks_like_code(words) and 0 < len(digits) <= 3:
        alike = sorted(
            codes(), key=lambda code: (not code.startswith(f"DDP{digits[0]}"), abs(int(code[3:]) - int(digits)))
        )
        return tuple(alike[:limit])
    names = {page.name: page.code for page in pages().values()} | {code.lower(): code for code in codes()}
    return tuple(names[name] for name in get_close_matches(text, names, limit, 0.6))


_WORD = re.compile(r"[a-z0-9_]{2,}")
_COMMON = frozenset({
    "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "does", "for", "from", "has", "have", "how", "in",
    "is", "it", "its", "my", "not", "of", "on", "only", "or", "out", "that", "the", "then", "this", "to", "was", "what",
    "when", "where", "which", "why", "will", "with", "you", "your", "after", "before", "all", "one", "some",
})  # fmt: skip
# Weight of a word by the part in which it occurs.
_WEIGHTS = {"name": 12.0, "what": 3.0, "symptom": 2.0, "shows": 2.0, "fix": 1.0, "recognised": 1.0}


def search(words: str, limit: int = 8) -> tuple[Page, ...]:
    """The best matches first: sorted by the number of matching words, then by weight."""
    index, rarity = _index()
    wanted = {_stem(word) for word in _WORD.findall(words.lower()[:400])} - {_stem(word) for word in _COMMON}
    scores: dict[str, tuple[int, float]] = {}
    for code, weights in index.items():
        hits = [weights[word] * rarity[word] for word in wanted if word in weights]
        if hits:
            scores[code] = len(hits), sum(hits)
    best = sorted(scores, key=lambda code: (-scores[code][0], -scores[code][1], code))
    return tuple(page(code) for code in best[:limit])


@cache
def _index() -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """The weight of each word per page, and the rarity of each word."""
    index: dict[str, dict[str, float]] = {}
    for page in pages().values():
        weights: defaultdict[str, float] = defaultdict(float)
        for field, weight in _WEIGHTS.items():
            text = f"{page.code} {page.name}" if field == "name" else getattr(page, field)
            for word, count in Counter(map(_stem, _WORD.findall(text.lower()))).items():
                weights[word] += weight * (1.0 + math.log(count))
        for place, word in enumerate(dict.fromkeys(map(_stem, _WORD.findall(page.words.lower())))):
            weights[word] += 8.0 + 8.0 / (1 + place)
        index[page.code] = dict(weights)
    counts = Counter(word for weights in index.values() for word in weights)
    return index, {word: math.log(1.0 + len(index) / count) for word, count in counts.items()}


def _stem(word: str) -> str:
    """Maps ``hangs``, ``hanging`` and ``hang`` to one stem; crude, but applied to queries and pages alike."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word
