"""The words for a difference: the text of its decision, where each side went, and what it called."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.facts.paths.align import Difference
from ddpnb.recording.facts.paths.follow import AT_SITE, offset_of
from ddpnb.recording.facts.paths.frames import BRANCH, CALL, HANDLED, RETURN, UNWIND, Trace
from ddpnb.recording.facts.paths.shapes import END, Shape
from ddpnb.recording.parting import LEFT_LOOP
from ddpnb.recording.path import MOST, A

_LONGEST = 200  # characters of an expression


def text_of(sources: Mapping[str, str], shape: Shape, offset: int) -> str:
    """The expression of a decision, or the line, as it is in the source; empty where that is not known."""
    source = sources.get(shape.code.file)
    branch = shape.branches.get(offset)
    line = branch.line if branch is not None else shape.line(offset)
    lines = source.splitlines()[line - 1 : (branch.end_line if branch is not None else line)] if source else []
    if not lines:
        return ""
    if branch is None or (branch.column, branch.end_column) == (0, 0):
        return lines[0].strip()[:_LONGEST]
    encoded = [one.encode("utf-8", "replace") for one in lines[:4]]
    if len(lines) <= 4:
        encoded[-1] = encoded[-1][: branch.end_column]
    encoded[0] = encoded[0][branch.column :]
    return " ".join(one.decode("utf-8", "replace").strip() for one in encoded).strip()[:_LONGEST]


def callers_of(trace: Trace, frame: int) -> tuple[Site, ...]:
    """The lines of the user's by which a function was entered, outermost first; not those of packages between."""
    found: list[Site] = []
    while frame and trace.parent[frame]:
        site = trace.site[frame]
        frame = trace.parent[frame]
        if site and trace.shape(frame).code.user:
            found.append(trace.shape(frame).site(site - 1))
    return tuple(reversed(found))


def call_text(trace: Trace, number: int) -> str:
    place = trace.calls[number]
    word = trace.words[place]
    operator, group = trace.operator(number), trace.book.texts[trace.group(number)]
    if trace.peers[number]:
        what = f"{operator} {'from' if 'recv' in operator else 'to'} {trace.peers[number] - 1}"
    else:
        what = f"{operator} #{trace.number(number)} of {group}" if trace.number(number) else f"{operator} of {group}"
    shape = trace.shape(trace.frame_at(place))
    site = word >> A & MOST
    return f"{what} at {shape.site(site - 1)}" if site and shape.code.file else what


def where_to(trace: Trace, one: Difference, side: int) -> tuple[Site, str]:
    """Where the way of one side leads, and how it is said."""
    place, shape = one.places[side], one.shape
    raised = one.raised[side]
    if raised is not None:
        return raised_at(trace, place)
    if one.kind == "exception":
        offset = offset_of(trace.words[place]) if place < len(trace) else -1
        return shape.site(offset) if offset >= 0 else shape.site(one.offset), ""
    if one.to[side] < 0:
        word = trace.words[place] if place < len(trace) else 0
        if word & 15 in AT_SITE and word & 15 != CALL and offset_of(word) == one.offset:
            code = trace.book.shapes[word >> A & MOST].code
            return Site(code.file, code.line, code.function), f"called {code.function}"
        return shape.site(one.offset), ""
    if one.kind == "loop" and shape.enters(one.offset, one.to[side]):
        return shape.site(one.to[side]), "entered the loop"
    block = shape.block(one.to[side])
    branch = shape.branches.get(one.offset)
    behind = shape.behind(shape.block(one.offset))  # what both sides run decides nothing
    rest = takewhile(lambda at: at != behind, shape.chain(block)[1:])
    lines = [line for at in (one.to[side], *(shape.starts[at] for at in rest)) for line in shape.lines_from(at)]
    own = range(branch.line, branch.end_line + 1) if branch is not None else ()
    line = next((line for line in lines if line not in own), lines[0])
    to = Site(shape.code.file, line, shape.code.function)
    if one.kind == "loop":
        return to, LEFT_LOOP
    word = trace.words[place + 1] if place + 1 < len(trace) else -1
    if word & 15 in (HANDLED, UNWIND) and word >= 0:
        at = trace.raised.get(place + 1, (-1, ""))[0]
        if block != END and shape.block(at) in shape.chain(block):
            return to, raised_at(trace, place + 1)[1]
    if word & 15 == RETURN and word >= 0:
        return NO_SITE if line in own else to, "returned"
    if word & 15 == BRANCH and word >= 0 and shape.loops(offset_of(word)) and lines[0] in own:
        return to, "continued with the next iteration"
    return to, LEFT_LOOP if shape.leaves(one.offset, one.to[side]) else ""


def raised_at(trace: Trace, place: int) -> tuple[Site, str]:
    what = trace.raised.get(place, (-1, ""))[1] or "an exception"
    to = NO_SITE
    at = place
    while at < len(trace) and trace.words[at] & 15 == UNWIND:
        at += 1
    if at < len(trace) and trace.words[at] & 15 == HANDLED:
        handled = trace.shape(trace.frame_at(at)).handler(trace.words[at] >> A & MOST)
        if at == place:
            to = handled
        return to, f"raised {what}, handled at {handled}"
    return to, f"raised {what}"
