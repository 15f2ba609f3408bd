"""Of a report: the lines of the logs on which a finding rests, the order of events, and an answer to paste."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpnb.recording import phrases
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Recording
from ddpnb.recording.report import LogLine, Report
from ddpnb.texts import shortened

INFERRED = "(inferred)"
_SAYS = "The log says it."
_PLACE = re.compile(r" \[[^\n]{1,400}: \".{0,200}\"\]$")  # which ends a sentence
_RANKS = re.compile(r"[Rr]anks? (\d[\d, -]*(?:and \d+(?:-\d+)?)?)")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_NOWHERE = re.compile(r"\boccurs? in none of these files|\boccurs? in these files, but no call|is not known|inferred")
#: what a sentence is about, by its words, the first that fits; the lines that say it, the best first
_ABOUT = (
    (re.compile(r"\bcalled no|'s last call|last passed"), ("progress", "call", "wait")),
    (re.compile(r"\braised\b|\bexited\b|\bkilled\b|\bended\b|\blost (?:its|the) connection"), ("end", "message")),
    (re.compile(r"\bwaited\b|\b(?:is|are|was|were) (?:blocked )?in\b|timed out"), ("wait", "call", "progress")),
)
_ANY = ("wait", "end", "message", "progress", "call")
_EVENTS, _FEW, _QUOTE = 8, 4, 90
_KEEPS = ("DDP318",)  # whose headline says what is not known, and names nobody
_BY_FILE = "By file: it is not known which events of one file are before those of another."
_RAISED = re.compile(r"\braised (\w{1,80})")
_WORD = re.compile(r"[a-z]{3,40}")
_NAMES = re.compile(r"(?:A|An|Another|Ranks?|The|No|One|Only|Samples|There|This)\b")


def in_the_log(recording: Recording, finding: Finding) -> Finding:
    """A finding whose sentences name lines of the log, and say which of them are inferred.

    Args:
        recording: of a report with logs; another one's finding stays as it is.
        finding: an error.
    """
    report = recording.report
    if report is None or not report.lines or finding.severity != "error":
        return finding
    if report.cut and finding.certainty != "likely":
        finding = replace(finding, certainty="likely")
    evidence = [_with_line(report, sentence, finding) for sentence in finding.evidence]
    if not any(_PLACE.search(sentence) for sentence in evidence):
        evidence = [text for text in [_with_line(report, _SAYS, finding)] if text != _SAYS] + evidence
    if finding.certainty != "likely":
        return replace(finding, evidence=tuple(evidence))
    if not any(INFERRED in one for one in evidence) and (why := _what_is_inferred(report, finding)):
        evidence.append(f"{why} {INFERRED}")
    return replace(finding, evidence=tuple(evidence), summary=_probably(finding))


def _with_line(report: Report, sentence: str, finding: Finding) -> str:
    if _NOWHERE.search(sentence):
        return f"{sentence} {INFERRED}" if finding.certainty == "likely" else sentence
    lines = _lines_of(report, sentence, finding)
    if not lines:
        return sentence
    return f"{sentence} [{_places(lines)}: {_quote(lines[0])}]"


def _lines_of(report: Report, sentence: str, finding: Finding) -> list[LogLine]:
    """The lines that say what a sentence says."""
    ranks = _ranks(sentence)
    counted = [line for line in report.lines if not line.why] or list(report.lines)
    own = [line for line in counted if ranks & set(line.ranks)] if ranks else []
    own = (
        own
        or ([] if ranks else _closest(sentence, counted, finding))
        or [line for line in counted if not line.ranks and line.about in ("end", "message")]
        or ([line for line in counted if finding.concerned & set(line.ranks)] if not ranks else [])
    )
    if (raised := _RAISED.search(sentence)) and (said := [line for line in own if raised[1] in line.words]):
        own = said
    abouts = next((abouts for pattern, abouts in _ABOUT if pattern.search(sentence)), _ANY)
    for about in (*abouts, *_ANY):
        if found := [line for line in own if line.about == about]:
            first = {line.ranks: line for line in reversed(found)}  # one of each rank
            return sorted(first.values(), key=lambda line: (line.path, line.number))
    return []


def _closest(sentence: str, lines: Sequence[LogLine], finding: Finding) -> list[LogLine]:
    """The lines of those at fault; or what no rank wrote, if it has more words of the sentence."""
    words = set(_WORD.findall(sentence.lower()))
    own = [line for line in lines if set(finding.culprits) & set(line.ranks)]
    alike = {len(words.intersection(_WORD.findall(line.words.lower()))): line for line in lines if not line.ranks}
    most = max((len(words.intersection(_WORD.findall(line.words.lower()))) for line in own), default=0)
    return [alike[max(alike)]] if own and alike and max(alike) > most else own


def _ranks(sentence: str) -> set[int]:
    """The ranks that the first words of a sentence name."""
    match = _RANKS.search(sentence[:200])
    found: set[int] = set()
    for first, last in _RANGE.findall(match[1]) if match else ():
        found.update(range(int(first), min(int(last or first), int(first) + 4096) + 1))
    return found


def _places(lines: Sequence[LogLine]) -> str:
    """``train.log:3, 7 and 2 more``."""
    shown: list[str] = []
    path = ""
    for line in lines[:_FEW]:
        place = _short(line)
        shown.append(place.rpartition(":")[2] if line.path == path and ":" in place else place)
        path = line.path
    more = f" and {len(lines) - _FEW} more" if len(lines) > _FEW else ""
    return ", ".join(shown) + more


def _short(line: LogLine) -> str:
    return str(replace(line, path=shortened(os.path.basename(line.path) or line.path, 60)))


def _quote(line: LogLine) -> str:
    return f'"{shortened(line.words, _QUOTE)}"'


def _what_is_inferred(report: Report, finding: Finding) -> str:
    """What no line says."""
    who = phrases.ranks(finding.culprits)
    if report.cut:
        return "The log ends within a line: what follows may say something else."
    if set(finding.culprits) & set(report.unordered):
        return f"Another one may have failed first: {phrases.ranks(report.unordered)} failed in files whose clocks are not known to agree."
    if finding.culprits and finding.code == "DDP312":
        verb = phrases.verb(finding.culprits, "process", "processes")
        return f"No line confirms that this ended the {verb} of {who}, before anything else failed."
    if finding.culprits:
        return f"No line says that {who} {phrases.verb(finding.culprits, 'is', 'are')} the cause."
    return ""


def _probably(finding: Finding) -> str:
    if finding.code in _KEEPS or not (finding.culprits or finding.sides):
        return finding.summary
    text = finding.summary
    return f"Probably {text[:1].lower() if _NAMES.match(text) else text[:1]}{text[1:]}"


def order_of_events(recording: Recording) -> tuple[str, ...]:
    """What the logs show, in the order of time, or by file: each with its place, who wrote it, and its words."""
    report = recording.report
    if report is None:
        return ()
    alike: dict[tuple[str, str, str], list[LogLine]] = {}
    said = {(line.path, line.number) for line in report.lines if line.about not in ("call", "message")}
    for line in report.lines:
        if line.about != "call" and not (line.about == "message" and (line.path, line.number) in said):
            # One event of several ranks differs in numbers alone.
            words = re.sub(r"\d+", "#", line.words) if line.about != "end" else line.words.partition(":")[0]
            alike.setdefault((line.about, words, line.why), []).append(line)
    alone = len({line.path for line in report.lines}) == 1
    events = [_event(lines, alone=alone) for lines in alike.values()]
    if len(events) < 2:
        return ()
    shown = events if len(events) <= _EVENTS else [*events[: _EVENTS - 3], "...", *events[-2:]]
    return (*([] if report.in_time else [_BY_FILE]), *shown)


def _event(lines: Sequence[LogLine], *, alone: bool) -> str:
    ranks = sorted({rank for line in lines for rank in line.ranks})
    who = f"{phrases.ranks(ranks)}: " if ranks else ""
    why = f" ({lines[0].why})" if lines[0].why else ""
    place = _short(lines[0])
    if alone:  # the file is named above
        place = re.sub(r"^.*:(?=\d+$)", "line ", place)
    return f"{place}: {who}{_quote(lines[0])}{why}"


def answer(recording: Recording, errors: Sequence[Finding]) -> str:
    """A paragraph to post as an answer: what these files show, and what to attach, of which ranks."""
    report = recording.report
    if report is None or not report.lines:
        return ""
    found = [f"{errors[0].summary}"] if errors else [f"{report.outside}."] if report.outside else []
    seen = sorted({*report.present, *(rank for rank, one in recording.ranks.items() if one.mentioned)})
    part = f" ({report.excerpt})" if report.excerpt else ""
    if report.excerpt or report.cut:
        found.append(f"What you posted is an excerpt{part or ' (it ends within a line)'}.")
    return " ".join([*found, *_attach(recording, errors, seen)])


def _attach(recording: Recording, errors: Sequence[Finding], seen: Sequence[int]) -> Iterable[str]:
    if not errors:
        return ["Please attach the whole output of all ranks, from their start."]
    first = errors[0]
    if first.culprits:
        who = phrases.ranks(first.culprits)
        wanted = [f"the whole output of {who} (torchrun --log-dir DIR --redirects 3)"]
    else:
        only = (
            f"; these files show {phrases.ranks(seen)} only"
            if seen and len(seen) < max(recording.world_size, 2)
            else ""
        )
        wanted = [f"the whole output of all ranks (torchrun --log-dir DIR --redirects 3{only})"]
    if first.waiting and first.code not in ("DDP311", "DDP312"):
        ranks = phrases.ranks(sorted(first.concerned))
        wanted.append(f"the flight-recorder dumps of {ranks} (TORCH_FR_BUFFER_SIZE=2000, TORCH_NCCL_DUMP_ON_TIMEOUT=1)")
        of = phrases.ranks(first.culprits) if first.culprits else "all ranks"
        wanted.append(f"stacks of {of} while it hangs (py-spy dump --pid PID)")
    return [f"Please attach {', '.join(wanted[:-1])}{' and ' if wanted[1:] else ''}{wanted[-1]}."]
