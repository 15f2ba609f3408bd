"""Recordings in files: two lines of JSON, compressed with gzip. Nothing in a file is executed, and all of it is checked.

The first line names the format, its version, and the fields of each class in their order; the second is the recording.
A class is written as the list of its fields. Sites, groups and signatures, which thousands of calls share, are written
once, in tables, and are referred to by their index; so are the codes of paths, whose words are compressed. A field that this version does not know is skipped; one that the file
does not have gets its default.

What a file may hold is limited, and is counted before it is read: a few bytes can unpack to any number of values. Reading
takes at most 1 GiB of memory.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, get_args, get_origin

from ddpnb.errors import UsageError
from ddpnb.recording import arguments
from ddpnb.recording.calls import Group, Signature, Site
from ddpnb.recording.codec import STRICT, Codec, Reader, hints_of, integer, optional
from ddpnb.recording.events import Event, EventState, read, written
from ddpnb.recording.files import similar, write_whole
from ddpnb.recording.names import UNDECODABLE, given_name
from ddpnb.recording.path import Code, Path
from ddpnb.recording.path_file import beginning, sound
from ddpnb.recording.recording import Recording

FORMAT, VERSION = "ddpnb recording", 1
_SHARED: tuple[type, ...] = (Site, Group, Signature, Code)
_STORED = {"history": "phases", "events_forgotten": "phases_forgotten"}  # names of fields in files
_FIELDS = {stored: field for field, stored in _STORED.items()}
_MOST = 64 << 20  # bytes of JSON in a file that is read
_MOST_VALUES = 6_000_000
_COSTS = {b",": 1, b"[": 2, b"{": 4}  # in values of 64 bytes: no value is without one of these before it
_RANKS = range(1 << 16)
_KEPT = 200_000  # calls of all ranks that are written, and time marks: what all of them take can be read
_WORDS = 2_000_000  # of the paths of all ranks that are written
_LONGEST_HEADER = 1 << 16
_CHUNK = 1 << 16
_LONGEST = 2000  # characters of what is missing of a path
_SMALLER = "Save a part of it: snapshot() of fewer ranks, or a shorter run; or load the logs and dumps of the job."
_HINT = "load() reads files that world.save(), Recording.save() or `ddpnb run --save` has written."


@dataclass(frozen=True, slots=True)
class Phase:
    """An event as it is in a file."""

    name: str
    state: EventState
    began_ns: int
    ended_ns: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PackedPath:
    """A path as it is in a file."""

    threads: Mapping[str, str]
    codes: tuple[Code, ...]
    texts: tuple[str, ...]
    forgotten: int
    missing: str


def save(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write a recording, all of it or nothing.

    Raises:
        UsageError: ``path`` is not a path.
        CannotWrite: the file cannot be written.
    """
    writer = _Writer()
    body = writer.writer(Recording)(_last(recording))
    header = {"format": FORMAT, "version": VERSION, "fields": writer.fields}
    lines = [json.dumps(header), json.dumps({"tables": writer.tables, "recording": body}, separators=(",", ":"))]
    write_whole(path, gzip.compress("\n".join(lines).encode(), compresslevel=6, mtime=0))


def recognises(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a recording, or is named as one."""
    if os.fsdecode(path).endswith(".ddpnb"):
        return not os.path.isdir(path)
    try:
        return FORMAT.encode() in _unpacked(path, 64)
    except (OSError, EOFError, zlib.error, ValueError):
        return False


def load(path: str | os.PathLike[str]) -> Recording:
    """Read a recording.

    Args:
        path: a file that ``World.save()`` or ``Recording.save()`` wrote.

    Returns:
        The Recording, which ``ddpnb.diagnose()`` and ``ddpnb.show()`` take.

    Raises:
        UsageError: the file cannot be read, is not a recording, is damaged, or was written by a newer version.

    Example:
        >>> ddpnb.diagnose(ddpnb.load("hang.ddpnb"))
    """
    shown = arguments.short(os.fspath(path) if isinstance(path, os.PathLike) else path)
    try:
        text = _unpacked(path, _LONGEST_HEADER + _MOST)
        end = text.find(b"\n", 0, _LONGEST_HEADER)
        header = json.loads(text[: max(end, 0)])
        if header["format"] != FORMAT:
            raise UsageError(f"{shown} is not a recording.", _HINT)
        if header["version"] > VERSION:
            raise UsageError(f"{shown} was written by a newer version of ddpnb.", "Update ddpnb to read it.")
        if len(text) - end > _MOST:
            raise UsageError(f"{shown} is too large: more than {_MOST >> 20} MiB when unpacked.", _SMALLER)
        values = sum(cost * text.count(mark) for mark, cost in _COSTS.items())
        if values > _MOST_VALUES:
            raise UsageError(f"{shown} is too large: more than {_MOST_VALUES:,} values.", _SMALLER)
        content = json.loads(text[end:])
        del text
        reader = _Reader(header["fields"], content["tables"], _MOST_VALUES - values)
        recording = reader.read(Recording, content["recording"])
        named = all(rank == record.rank and rank in _RANKS for rank, record in recording.ranks.items())
        if not named or not 0 <= recording.world_size <= len(_RANKS):
            raise ValueError("no such rank")
        return recording
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {error.strerror or error}.", similar(path, _HINT)) from None
    except zlib.error:
        raise UsageError(f"{shown} is not a recording.", _HINT) from None
    except (*UNDECODABLE, EOFError, MemoryError) as error:
        raise UsageError(f"{shown} is damaged, or not a recording ({type(error).__name__}).", _HINT) from None


def _unpacked(path: str | os.PathLike[str], most: int) -> bytes:
    """The first bytes of a compressed file. Only its first member is read: a file may have millions of empty ones.

    Raises:
        OSError: it cannot be read.
        zlib.error: it is not compressed, or damaged.
        EOFError: it is cut off.
    """
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    pieces: list[bytes] = []
    left = most
    with open(path, "rb") as file:
        while left and not unpacking.eof:
            packed = unpacking.unconsumed_tail or file.read(_CHUNK)
            if not packed:
                raise EOFError
            pieces.append(unpacking.decompress(packed, left))
            left -= len(pieces[-1])
    return b"".join(pieces)


def _last(recording: Recording) -> Recording:
    """What of a recording is written: of very many ranks fewer calls and time marks of each, the last ones."""
    most = max(16, _KEPT // max(1, len(recording.ranks)))
    words = max(1024, _WORDS // max(1, len(recording.ranks)))
    if all(
        len(record.calls) <= most >= len(record.marks) and _length(record.path) <= words
        for record in recording.ranks.values()
    ):
        return recording
    ranks = {
        rank: replace(
            record,
            calls=record.calls[-most:],
            marks=record.marks[-most:],
            forgotten=record.forgotten + max(0, len(record.calls) - most),
            path=_shortened(record.path, words),
        )
        for rank, record in recording.ranks.items()
    }
    return replace(recording, ranks=ranks)


def _length(path: Path | None) -> int:
    return sum(map(len, path.threads.values())) if path is not None else 0


def _shortened(path: Path | None, most: int) -> Path | None:
    """The last words of a path, of each thread the same share."""
    length = _length(path)
    if path is None or length <= most:
        return path
    kept = {name: beginning(words[len(words) - len(words) * most // length :]) for name, words in path.threads.items()}
    left = sum(map(len, kept.values()))
    return replace(path, threads=kept, forgotten=path.forgotten + length - left)


class _Writer:
    def __init__(self) -> None:
        self.fields: dict[str, list[str]] = {}
        self.tables: dict[str, list[Any]] = {kind.__name__: [] for kind in _SHARED}
        self._places: dict[str, dict[Any, int]] = {kind.__name__: {} for kind in _SHARED}
        self._of: dict[Any, Callable[[Any], Any]] = {}
        self._columns: dict[type, list[tuple[str, Callable[[Any], Any]]]] = {}

    def writer(self, hint: Any) -> Callable[[Any], Any]:
        """What makes JSON of a value of this type; of None it is None. Types are looked at once: there may be many ranks."""
        if hint not in self._of:
            self._of[hint] = self._made(optional(hint) or hint)
        return self._of[hint]

    def _made(self, hint: Any) -> Callable[[Any], Any]:
        if hint is Event:
            return lambda event: self._object(
                Phase, Phase(event.title, event.state, event.began_ns, event.ended_ns, written(event))
            )
        if hint is Path:
            return lambda path: self._object(PackedPath, _packed(path))
        if is_dataclass(hint):
            return partial(self._object, hint)  # type: ignore[arg-type]
        origin, inner = get_origin(hint), get_args(hint)
        if origin is tuple:
            return lambda value: [
                None if one is None else self.writer(kind)(one)
                for kind, one in zip(_members(inner, len(value)), value, strict=True)
            ]
        if origin is Mapping:
            key, held = map(self.writer, inner)
            return lambda value: [[key(name), None if one is None else held(one)] for name, one in value.items()]
        return lambda value: int(value) if isinstance(value, IntEnum) else value

    def _object(self, kind: type, value: Any) -> Any:
        if kind not in self._columns:
            hints = hints_of(kind)
            self.fields[kind.__name__] = [_STORED.get(field, field) for field in hints]
            self._columns[kind] = [(field, self.writer(hint)) for field, hint in hints.items()]
        held = [getattr(value, field) for field, _ in self._columns[kind]]
        if kind not in _SHARED:
            return self._listed(kind, held)
        places, table = self._places[kind.__name__], self.tables[kind.__name__]
        key = tuple(held)  # groups that are equal may have other names
        if key not in places:
            places[key] = len(table)
            table.append(self._listed(kind, held))
        return places[key]

    def _listed(self, kind: type, held: list[Any]) -> list[Any]:
        return [None if one is None else write(one) for (_, write), one in zip(self._columns[kind], held, strict=True)]


class _Reader(Codec):
    """Raises one of ``UNDECODABLE`` for whatever is not as a recording must be.

    ``spare``: how many fields may get their default, besides the values that are there.
    """

    PLAIN: ClassVar[Mapping[Any, Reader]] = STRICT

    def __init__(self, named: dict[str, list[str]], tables: dict[str, list[Any]], spare: int) -> None:
        super().__init__()
        self._named, self._spare = named, spare
        self._columns: dict[type, tuple[list[tuple[str, Reader]], int]] = {}
        self._shared: dict[type, list[Any]] = {}
        self._shared = {
            kind: [self._listed(kind, entry) for entry in tables.get(kind.__name__, ())] for kind in _SHARED
        }
        if not all(rank in _RANKS for group in self._shared[Group] for rank in group.ranks):
            raise ValueError("no such rank")

    def mapping(self, key: Reader, read: Reader, value: Any, depth: int) -> dict[Any, Any]:
        return {key(name, depth): read(one, depth) for name, one in value}

    def object(self, kind: Any, value: Any, depth: int) -> Any:  # noqa: ARG002
        if kind is Event:
            phase = self._listed(Phase, value)
            return read(phase.name, phase.facts, phase.state, phase.began_ns, phase.ended_ns)
        if kind is Path:
            return self._path(self._listed(PackedPath, value))
        if kind not in self._shared:
            return self._listed(kind, value)
        if integer(value) < 0:
            raise ValueError("not an index")
        return self._shared[kind][value]

    def _path(self, packed: PackedPath) -> Path:
        texts = tuple(map(given_name, packed.texts))
        threads: dict[str, tuple[int, ...]] = {}
        for name, data in packed.threads.items():
            words = _unpacked_words(data, max(0, self._spare))
            self._spare -= len(words)
            threads[given_name(name)] = tuple(sound(words, packed.codes, texts))
        return Path(threads, packed.codes, texts, packed.forgotten, packed.missing[:_LONGEST])

    def _listed(self, kind: type, values: list[Any]) -> Any:
        columns, lacking = self._columns.get(kind) or self._made_columns(kind)
        self._spare -= lacking
        if self._spare < 0:
            raise ValueError("too many fields are missing")
        return kind(**{name: read(value, 0) for (name, read), value in zip(columns, values, strict=True) if name})

    def _made_columns(self, kind: type) -> tuple[list[tuple[str, Reader]], int]:
        """The name of each field of a class in this file (empty if it is not known) with what reads it, and how many have their default."""
        hints = hints_of(kind)
        names = [_FIELDS.get(stored, stored) for stored in self._named[kind.__name__]]
        needed = {one.name for one in fields(kind) if one.init and one.default is one.default_factory is MISSING}
        if not needed <= {*names}:
            raise ValueError("a field is missing")
        columns = [(name, self.named(name, hints[name])) if name in hints else ("", integer) for name in names]
        self._columns[kind] = columns, len(hints.keys() - {*names})
        return self._columns[kind]


def _packed(path: Path) -> PackedPath:
    threads = {
        name: base64.b64encode(zlib.compress(array("Q", words).tobytes(), 6)).decode()
        for name, words in path.threads.items()
    }
    return PackedPath(threads, path.codes, path.texts, path.forgotten, path.missing)


def _unpacked_words(data: str, most: int) -> array[int]:
    """The words of a thread.

    Raises:
        ValueError: there are more than so many, or they are damaged.
    """
    words = array("Q")
    unpacking = zlib.decompressobj()
    words.frombytes(unpacking.decompress(base64.b64decode(data, validate=True), 8 * most + 1))
    if not unpacking.eof:
        raise ValueError("too many words")
    return words


def _members(inner: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    return inner[:1] * count if inner[1:] == (...,) else inner
