"""From the bytes of a log to its text: encodings, NULs, and the middle of a large one."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_SAMPLE = 4096
_NO_TEXT = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_BARS = re.compile(rb"\xe2[\x96\x97][\x80-\xbf]")
_NEAR, _BELOW = 2 << 10, 16 << 10  # bytes before a known word and after it
_MOST_KEPT = 16 << 20


def encoding_of(head: bytes) -> str | None:
    """The encoding of a log, by its first bytes; None where it is no text.

    PowerShell writes UTF-16. A log that was emptied while it was written begins with NULs.
    """
    marked = next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), None)
    if marked is not None:
        return marked
    sample = head.lstrip(b"\0")[:_SAMPLE]
    if sample is not head and (len(head) - len(sample)) % 2 and sample[1:2] == b"\0":
        sample = b"\0" + sample  # the first byte of UTF-16, big endian, is a NUL
    half = max(len(sample) // 2, 1)
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if odd > 0.6 * half and even < 0.1 * half:
        return "utf-16-le"
    if even > 0.6 * half and odd < 0.1 * half:
        return "utf-16-be"
    return None if len(_NO_TEXT.findall(sample)) > 0.05 * len(sample) else "utf-8"


def decoded(data: bytes, encoding: str) -> str:
    """The text, without NULs and marks; each character of a progress bar as one byte, which keeps large logs small."""
    if encoding == "utf-8":
        data = _BARS.sub(b"#", data)
    return data.decode(encoding, "replace").replace("\0", "").replace("\ufeff", "")


class Middle:
    """The middle of a large log: the lines around known words are kept, within a bound."""

    def __init__(self, words: Iterable[str], encoding: str) -> None:
        self._words = [word.encode(encoding) for word in words]
        self._newline = "\n".encode(encoding)
        self._kept: list[bytes] = []
        self._size = 0
        self._before = b""
        self.left_out = False

    def add(self, piece: bytes) -> None:
        """The next piece of it; an empty one stands for what was left out."""
        if not piece:
            self.left_out = True
        text = self._before + piece
        end = 0
        following = {word: text.find(word) for word in self._words}
        while found := [place for place in following.values() if place >= end]:
            start, end = self._around(text, max(min(found), end), end)
            self._keep(text[start:end])
            following = {
                word: place if place < 0 or place >= end else text.find(word, end) for word, place in following.items()
            }
        self._before = text[max(end, len(text) - _NEAR) :] if piece else b""

    def _around(self, text: bytes, place: int, least: int) -> tuple[int, int]:
        start = text.rfind(self._newline, least, max(place - _NEAR, least))
        end = text.find(self._newline, min(place + _BELOW, len(text)))
        return (start if start >= 0 else least), (end + len(self._newline) if end >= 0 else len(text))

    def _keep(self, lines: bytes) -> None:
        if self._size + len(lines) > _MOST_KEPT:
            self.left_out = True
            return
        self._kept.append(lines)
        self._size += len(lines)

    @property
    def text(self) -> bytes:
        return b"".join(self._kept)
