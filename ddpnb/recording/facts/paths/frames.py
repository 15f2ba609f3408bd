"""A path as frame instances: its words with common numbers for all ranks, and which function each of them belongs to."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence

from ddpnb.recording.facts.paths.shapes import Shape
from ddpnb.recording.path import MOST, A, B, C, Code, Path, word

# The kinds of words, as plain numbers: they are compared very often.
BRANCH, ENTER, RESUME, RETURN, YIELD, UNWIND = range(6)
RAISE, HANDLED, CALL, NUMBER, MARK, HOT, COLD, BASE, FRAME, GAP = range(6, 16)
WHOLE = (1 << 64) - 1
_EXITS = {kind: word(kind) for kind in (RETURN, YIELD, UNWIND)}
_CACHES = 8  # bytes
_DARK = HOT | MOST << B
_SEQ = (1 << 40) - 1
UNKNOWN = Code("", "?", 0)


class Book:
    """Numbers for codes and texts that mean the same on all ranks."""

    def __init__(self) -> None:
        self.shapes: list[Shape] = [Shape(UNKNOWN)]
        self.texts: list[str] = [""]
        self._codes: dict[tuple[str, str, int, str, bool], int] = {}
        self._texts: dict[str, int] = {"": 0}

    def codes(self, codes: Iterable[Code]) -> list[int]:
        found: list[int] = []
        for code in codes:
            key = code.file, code.function, code.line, code.digest, code.user
            number = self._codes.get(key)
            if number is None:
                number = self._codes[key] = len(self.shapes)
                self.shapes.append(Shape(code))
            found.append(number)
        return found

    def numbered(self, texts: Iterable[str]) -> list[int]:
        found: list[int] = []
        for text in texts:
            number = self._texts.get(text)
            if number is None:
                number = self._texts[text] = len(self.texts)
                self.texts.append(text)
            found.append(number)
        return found


class Trace:
    """What one thread of a rank did.

    ``words``: jumps, beginnings and ends of functions, handlers and calls; other words are kept beside them. Where a function
    ended does not distinguish two words, nor what was raised: the decision before them does. ``data``: the same as bytes.
    Frames are numbers in the order in which they began; 0 stands for what is below the first known one.
    """

    def __init__(self, book: Book) -> None:
        self.book = book
        self.words: list[int] = []
        self.data = b""
        self.complete = True  # it begins where the program began
        self.code, self.site, self.start, self.end, self.parent = [0], [0], [-1], [-1], [0]
        self.base: tuple[tuple[int, int], ...] = ()  # the codes and sites of frames that were open at its beginning
        self.edges: list[int] = []  # where frames begin and end, and the frame behind each
        self.inner: list[int] = []
        self.outermost = 0  # the frame at its beginning
        self.calls: list[int] = []  # where calls are; their keys (number, operator, group), and peers (0: none)
        self.keys: list[int] = []
        self.peers: list[int] = []
        self.groups: set[int] = set()
        self._made: frozenset[int] | None = None
        self.raised: dict[
            int, tuple[int, str]
        ] = {}  # by a handler or an end by an exception: where it was raised, and what
        self.marks: list[tuple[int, str]] = []
        self.hot: dict[int, dict[int, int]] = {}  # by code and jump: since when

    def __len__(self) -> int:
        return len(self.words)

    def shape(self, frame: int) -> Shape:
        return self.book.shapes[self.code[frame]]

    def frame_at(self, place: int) -> int:
        """The frame to which the word at a place belongs."""
        edge = bisect_left(self.edges, place) - 1
        return self.inner[edge] if edge >= 0 else self.outermost

    def begins(self, place: int) -> int:
        """The frame that the word at a place begins."""
        return bisect_left(self.start, place, 1)

    def closed(self, frame: int) -> bool:
        return self.end[frame] >= 0

    def behind(self, place: int) -> int:
        """The next word of the same frame; the end where the frame that begins here has not ended."""
        kind = self.words[place] & 15
        if kind == CALL:
            return place + 2
        if kind in (ENTER, RESUME):
            end = self.end[self.begins(place)]
            return end if end >= 0 else len(self.words)
        return place + 1

    def call_at(self, place: int) -> int:
        """The number of the first call that is not before a place."""
        return bisect_left(self.calls, place)

    def stack(self, frame: int) -> list[tuple[int, int]]:
        """(code, site) of the frames around, innermost first."""
        found: list[tuple[int, int]] = []
        while frame:
            found.append((self.code[frame], self.site[frame]))
            frame = self.parent[frame]
        return found

    def operator(self, call: int) -> str:
        return self.book.texts[self.keys[call] >> 20 & MOST]

    def group(self, call: int) -> int:
        return self.keys[call] & MOST

    def number(self, call: int) -> int:
        return self.keys[call] >> 40

    @property
    def made(self) -> frozenset[int]:
        """The keys of all its calls."""
        if self._made is None:
            self._made = frozenset(self.keys)
        return self._made


def trace(
    words: Sequence[int],
    codes: Sequence[int],
    texts: Sequence[int],
    book: Book,
    hidden: Collection[int] = (),
    counted: bool = True,
) -> Trace:
    """The Trace of a row of words.

    Args:
        words: of one thread; anything is accepted.
        codes, texts: the common numbers of those that words refer to.
        book: what the numbers mean.
        hidden: codes that are left out: what they called is taken as called by their callers.
        counted: whether calls are told apart by their numbers in their groups.
    """
    found = Trace(book)
    places = [place for place, one in enumerate(words) if one & 15]
    gap = next((place for place in reversed(places) if words[place] & 15 == GAP), -1)
    if gap >= 0:
        found.complete = False
        words = words[gap + 1 :]
        places = [place for place, one in enumerate(words) if one & 15]
    out, size = found.words, len(words)
    edges, inner = found.edges, found.inner
    code_of, site_of, start, end, parent = found.code, found.site, found.start, found.end, found.parent
    calls, keys, peers, raised = found.calls, found.keys, found.peers, found.raised
    many, many_texts = len(codes), len(texts)
    stack = [0]  # open frames; a hidden one is a negative number
    ghosts: list[tuple[int, int]] = []  # hidden frames: where the last visible one calls, and their codes
    last: dict[int, tuple[int, str]] = {}  # by frame, what was raised there last
    site = -1  # where the hidden frames that run were called
    skip = 0
    at = 0  # what is before it has been read
    real = -1  # the last collective or message
    lost = False  # which frames are open is not known

    def number(code: int) -> int:
        return codes[code] if code < many else 0

    def text(place: int) -> str:
        return book.texts[texts[place]] if place < many_texts else ""

    def hide(called: int, code: int) -> None:
        ghosts.append((called, code))
        stack.append(-len(ghosts))

    def code_at(frame: int) -> int:
        return code_of[frame] if frame >= 0 else ghosts[-1 - frame][1]

    def stay(left: list[int]) -> None:
        """Only these frames are open from here on; the words say nothing of it."""
        for frame in set(stack).difference(left):
            if frame > 0:
                end[frame] = len(out)
        stack[:] = left

    def rebase(frames: Sequence[int]) -> None:
        """These are open."""
        opened = [(number(one >> A & MOST), one >> B & MOST) for one in frames]
        kept = 1
        while kept < len(stack) and kept <= len(opened) and code_at(stack[kept]) == opened[kept - 1][0]:
            kept += 1
        stay(stack[:kept])
        for depth in range(kept, len(opened) + 1):
            code = opened[depth - 1][0]
            called = opened[depth - 2][1] + 1 if depth > 1 else 0
            if stack[-1] < 0:
                called = ghosts[-1 - stack[-1]][0]
            if code in hidden:
                hide(called, code)
                continue
            parent.append(_visible(stack))
            stack.append(len(code_of))
            code_of.append(code)
            site_of.append(called)
            start.append(len(out) - 1)
            end.append(-1)
        if out:
            edges.append(len(out) - 1)
            inner.append(_visible(stack))

    for place in places:
        if place < skip:
            at = place + 1
            continue
        if place > at and site < 0:
            out += words[at:place]
        at = place + 1
        one = words[place]
        kind = one & 15
        a, b = one >> A & MOST, one >> B & MOST
        if kind in (ENTER, RESUME):
            code = codes[a] if a < many else 0
            called = b if site < 0 else site
            if hidden and code in hidden:
                hide(called, code)
                site = called
                continue
            frame = len(code_of)
            edges.append(len(out))
            inner.append(frame)
            code_of.append(code)
            site_of.append(called)
            start.append(len(out))
            end.append(-1)
            parent.append(stack[-1] if site < 0 else _visible(stack))
            out.append(kind | code << A | called << B)
            stack.append(frame)
            site = -1
        elif kind in (RETURN, YIELD, UNWIND):
            frame = stack[-1]
            if frame == 0:  # of a frame of which nothing is known
                continue
            stack.pop()
            if frame > 0:
                if kind == UNWIND:
                    raised[len(out)] = last.get(frame) or (a, text(b))
                edges.append(len(out))
                out.append(_EXITS[kind])
                end[frame] = len(out)
                inner.append(stack[-1] if stack[-1] >= 0 else _visible(stack))
            site = ghosts[-1 - stack[-1]][0] if stack[-1] < 0 else -1
        elif kind == CALL:
            operator = texts[b] if b < many_texts else 0
            group = texts[one >> C & MOST] if one >> C & MOST < many_texts else 0
            seq = peer = 0
            if place + 1 < size and words[place + 1] & 15 == NUMBER:
                seq, peer = words[place + 1] >> A & _SEQ, words[place + 1] >> C & MOST
            if seq or peer:
                real = len(calls)
            if not counted:
                seq = peer
            found.groups.add(group)
            calls.append(len(out))
            keys.append(seq << 40 | operator << 20 | group)
            peers.append(peer)
            out.append(CALL | (a if site < 0 else site) << A | operator << B | group << C)
            out.append(NUMBER | seq << A | peer << C)
        elif kind == HANDLED:
            if site < 0:
                raised[len(out)] = last.get(stack[-1]) or (-1, text(b))
                out.append(HANDLED | a << A)
        elif kind == RAISE:
            if site < 0:
                last[stack[-1]] = a, text(b)
        elif kind == MARK:
            found.marks.append((len(out), text(b)))
        elif kind == HOT:
            code = number(a)
            if b < MOST:
                found.hot.setdefault(code, {}).setdefault(b, len(out))
            else:  # the whole function: neither its frames that are open nor later ones end
                stay([0, *(one for one in stack[1:] if code_at(one) != code)])
                if out:
                    edges.append(len(out) - 1)
                    inner.append(_visible(stack))
                site = ghosts[-1 - stack[-1]][0] if stack[-1] < 0 else -1
                lost = True
        elif kind == COLD:
            lost = True
        elif kind == BASE:
            skip = place + 1
            while skip < size and skip <= place + a and words[skip] & 15 == FRAME:
                skip += 1
            if place == 0 or lost:
                rebase(words[place + 1 : skip])
                site = ghosts[-1 - stack[-1]][0] if stack[-1] < 0 else -1
            lost = False
            if place == 0:
                found.outermost = _visible(stack)
                found.base = tuple(zip(code_of[1:], site_of[1:], strict=True))
    if at < size and site < 0:
        out += words[at:]
    _cut(found, real)
    try:
        found.data = array("Q", out).tobytes()
    except OverflowError:
        out[:] = [one & WHOLE for one in out]
        found.data = array("Q", out).tobytes()
    return found


def at_instruction(raised: int, called: int) -> bool:
    """Whether the instruction at an offset is that which called: both are seen at the instruction, or at the caches behind it."""
    return raised >= 0 and abs(called - raised) <= _CACHES


def _cut(trace: Trace, number: int) -> None:
    """Let a trace end with its last collective or message, if that failed: what follows comes from that."""
    if number < 0:
        return
    place, words = trace.calls[number], trace.words
    stop = following = place + 2
    while following < len(words) and words[following] & 15 in (ENTER, RESUME):
        following = trace.behind(following)
    if following >= len(words) or words[following] & 15 not in (HANDLED, UNWIND):
        return
    if not at_instruction(trace.raised.get(following, (-1, ""))[0], (words[place] >> A & MOST) - 1):
        return
    del words[stop:], trace.calls[number + 1 :], trace.keys[number + 1 :], trace.peers[number + 1 :]
    edges = bisect_left(trace.edges, stop)
    del trace.edges[edges:], trace.inner[edges:]
    frames = bisect_left(trace.start, stop, 1)
    for one in (trace.code, trace.site, trace.start, trace.end, trace.parent):
        del one[frames:]
    trace.end[:] = [end if end <= stop else -1 for end in trace.end]


def _visible(stack: Sequence[int]) -> int:
    """The innermost frame that is not hidden."""
    return next((one for one in reversed(stack) if one >= 0), 0)


def _originals(words: Sequence[int], codes: Sequence[Code]) -> list[int]:
    """The words with the places of the originals for those of copies."""
    found = list(words)
    stack: list[Code] = []

    def moved(place: int, shift: int, more: int) -> None:
        offset = (found[place] >> shift & MOST) - more
        if stack and stack[-1].copies and offset >= 0:
            found[place] += stack[-1].original(offset) - offset << shift

    for place, one in enumerate(words):
        kind = one & 15
        if kind == BRANCH:
            moved(place, B, 0)
        elif kind in (ENTER, RESUME):
            moved(place, B, 1)
            stack.append(codes[one >> A & MOST] if one >> A & MOST < len(codes) else UNKNOWN)
        elif kind in (RETURN, YIELD, UNWIND):
            moved(place, A, 0)
            del stack[-1:]
        elif kind == RAISE:
            moved(place, A, 0)
        elif kind in (CALL, MARK):
            moved(place, A, 1)
        elif kind == BASE:
            stack.clear()
        elif kind == FRAME:
            stack.append(codes[one >> A & MOST] if one >> A & MOST < len(codes) else UNKNOWN)
    return found


def dark(paths: Iterable[Path], book: Book) -> set[int]:
    """The codes of functions that were not recorded at times since they began too often."""
    found: set[int] = set()
    for path in paths:
        codes = book.codes(path.codes)
        for words in path.threads.values():
            found.update(
                codes[code]
                for one in words
                if one & _DARK == _DARK and one & 15 == HOT and (code := one >> A & MOST) < len(codes)
            )
    return found


def traces(
    paths: Mapping[int, Path], thread: str | None, book: Book, hidden: Collection[int] = (), counted: bool = True
) -> dict[int, Trace]:
    """By rank, the Trace of one thread (None: the main thread). Ranks that did the same share one."""
    known: dict[tuple[tuple[int, ...], ...], Trace] = {}
    found: dict[int, Trace] = {}
    for rank, path in paths.items():
        words = next(iter(path.threads.values()), ()) if thread is None else path.threads.get(thread, ())
        if not words:
            continue
        if any(code.copies for code in path.codes):
            words = _originals(words, path.codes)
        codes, texts = tuple(book.codes(path.codes)), tuple(book.numbered(path.texts))
        key = tuple(words), codes, texts, (int(path.forgotten > 0),)
        if key not in known:
            known[key] = trace(words, codes, texts, book, hidden, counted)
            known[key].complete &= not path.forgotten
        found[rank] = known[key]
    return found
