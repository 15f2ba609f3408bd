"""A path as text: what tests expect of real code."""

from __future__ import annotations

from collections.abc import Iterator

from ddpnb.recording.path import KIND, MOST, A, B, C, Code, Kind, Path


def told(path: Path, thread: str = "MainThread") -> list[str]:
    """The words of a thread, with lines instead of offsets: ``3 -> 4``, ``begin helper from 7``, ``all_reduce #2 at 9``."""
    return list(_Told(path).words(iter(path.threads[thread])))


class _Told:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.stack: list[int] = []

    def words(self, words: Iterator[int]) -> Iterator[str]:
        texts = self.path.texts
        for one in words:
            kind, a, b, c = Kind(one & KIND), one >> A & MOST, one >> B & MOST, one >> C
            if kind == Kind.BRANCH:
                yield f"{self.line(a)} -> {self.line(b)}"
            elif kind in (Kind.ENTER, Kind.RESUME):
                says = "begin" if kind == Kind.ENTER else "resume"
                yield f"{says} {self.function(a)} from {self.line(b - 1) if b else None}"
                self.stack.append(a)
            elif kind in (Kind.RETURN, Kind.YIELD, Kind.UNWIND):
                error = f" {texts[b]}" if kind == Kind.UNWIND else ""
                yield f"{kind.name.lower()} at {self.line(a)}{error}"
                self.stack.pop()
            elif kind in (Kind.RAISE, Kind.HANDLED):
                yield f"{kind.name.lower()} {texts[b]} at {self.line(a)}"
            elif kind == Kind.CALL:
                number = next(words)
                seq, peer = number >> A & ((1 << 40) - 1), number >> C
                what = f"#{seq}" if seq else f"with {peer - 1}"
                yield f"{texts[b]} {what} of {texts[c]} at {self.line(a - 1) if a else None}"
            elif kind == Kind.MARK:
                yield f"{texts[b]} at {self.line(a - 1) if a else None}"
            elif kind == Kind.BASE:
                frames = [next(words) for _ in range(a)]
                self.stack = [frame >> A & MOST for frame in frames]
                yield f"base of {a}"
            elif kind == Kind.HOT:
                where = "" if b == MOST else f" at {self.line(b, a)}"
                yield f"hot {self.function(a)}{where}"
                if b == MOST:
                    self.stack = [code for code in self.stack if code != a]
            else:
                yield kind.name.lower()

    def function(self, code: int) -> str:
        return self.path.codes[code].function

    def line(self, offset: int, code: int | None = None) -> int:
        where: Code = self.path.codes[self.stack[-1] if code is None else code]
        return next((line for start, line in reversed(where.lines) if start <= offset), where.line)
