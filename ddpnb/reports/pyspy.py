"""Dumps of py-spy (``py-spy dump``), as text and as JSON, of one process or of several in one file."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from ddpnb.recording.messages.tracebacks import of_user
from ddpnb.recording.names import UNDECODABLE, given_name, one_line
from ddpnb.recording.stacks import MAX_FRAMES, MAX_LOCALS, MAX_THREADS, Frame, Stack
from ddpnb.reports.facts import Fact, Identity, Speaker, StacksSeen
from ddpnb.reports.logs import Log, last_match

NAME = "py-spy dump"
MARKS = ("Python v", "owns_gil", "(idle)", "(active", "os_thread_id")

_PROCESS = re.compile(r"^[ \t]{0,16}Process (\d{1,10})(?:: ([^\n]{0,2000}))?$", re.MULTILINE)
_HEADER = re.compile(
    r"^[^\w\n]{0,12}(?:global[ _])?rank[ :_=#-]{0,3}(\d{1,6})\b(?!\.py)[^\n]{0,300}$", re.MULTILINE | re.IGNORECASE
)
_ARGUMENT = re.compile(r"(?:--(?:global[-_])?rank[ =]|\bRANK=)(\d{1,6})\b")
_THREAD = re.compile(
    r'[ \t]{0,16}Thread (?:0x)?([0-9A-Fa-f]{1,20}|\?) \((\w{1,10}(?:\+gil)?)\)(?:: "(.{0,200})")?\s{0,4}$'
)
_MAIN = re.compile(r'^[ \t]{0,16}Thread (?:0x)?[0-9A-Fa-f]{1,20} \(\w{1,10}(?:\+gil)?\): "MainThread"', re.MULTILINE)
_TITLE = re.compile(r"\brank[ _:=#-]{0,2}(\d{1,6})\b", re.IGNORECASE)
_FRAME = re.compile(r"([ \t]{2,24})(\S.{0,300}?) \((.{1,1000}?)(?::(\d{1,9}))?\)\s{0,4}$")
_LOCAL = re.compile(r"[ \t]{8,40}([^:\s]{1,200}): (.{0,2000})$")
_NATIVE = re.compile(r"\.so(?:[.\d]{0,20})$|\.(?:c|cc|cpp|cu|cxx|h|hpp|S|pyx|rs)$|^\[|^0x")
_VARIABLES = re.compile(r"[ \t]{4,40}(?:Arguments|Locals):\s{0,4}$")
_LIBRARIES = frozenset(
    {
        "torch", "numpy", "lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed", "megatron", "ray", "datasets",
        "torchvision", "fsspec", "filelock", "huggingface_hub", "PIL", "cv2", "pandas", "scipy", "jax", "zmq", "IPython", "ipykernel", "requests", "urllib3", "tqdm", "runpy", "wandb", "apex", "flash_attn", "triton",
    }
)  # fmt: skip
# Scripts of users have these names too.
_STANDARD = frozenset(sys.stdlib_module_names) - {
    "test",
    "code",
    "profile",
    "trace",
    "this",
    "main",
    "__main__",
    "types",
}
_MOST = 100_000  # processes
_MOST_PIDS = 1 << 22  # of Linux


def read(log: Log) -> Iterator[Fact]:
    """The stacks of each process; its rank by a line above it, its command, or its file's name."""
    yield from _of_text(log)
    before = 0
    for start, end, processes in _of_json(log.text) if '"frames"' in log.text else ():
        rank = rank_above(log, before, start)
        for text in processes:
            headed = text if rank is None else f"Rank {rank}\n{text}"
            yield from _of_text(Log(log.path, headed, [0], [log.speaker_at(start)]))
        before = end


def rank_above(log: Log, before: int, offset: int) -> int | None:
    """The rank that a line between two offsets names, as in ``=== Rank 3: http://... ===``: that of the last such line."""
    header = last_match(_HEADER, log.text, max(before, offset - 2000), offset)
    return int(header[1]) if header else None


def _of_text(log: Log) -> Iterator[Fact]:
    processes = list(islice(_PROCESS.finditer(log.text), _MOST))
    if not processes:
        yield from _of_threads(log)
    ends = [match.start() for match in processes[1:]] + [len(log.text)]
    before = 0
    for match, end in zip(processes, ends, strict=False):
        body = log.text[match.end() : end]
        stacks, idle = _stacks(body)
        if not stacks:
            continue
        speaker = log.speaker_at(match.start())
        argument = _ARGUMENT.search(match[2] or "")
        rank = rank_above(log, before, match.start())
        if rank is None:
            rank = int(argument[1]) if argument else speaker.rank
        before = match.end()
        yield from facts(Speaker(rank, int(match[1]), speaker.host), stacks, idle)


def _of_threads(log: Log) -> Iterator[Fact]:
    """A part of an output, without its first lines: the stacks of main threads below lines that name ranks."""
    mains = list(islice(_MAIN.finditer(log.text), _MOST))
    ends = [match.start() for match in mains[1:]] + [len(log.text)]
    before = 0
    for match, end in zip(mains, ends, strict=False):
        stacks, idle = _stacks(log.text[match.start() : end])
        above = last_match(_TITLE, log.text, max(before, match.start() - 300), match.start())
        rank = int(above[1]) if above else log.speaker_at(match.start()).rank
        before = match.end()
        if stacks and (rank is not None or len(mains) == 1):
            yield from facts(Speaker(rank, 0 if rank is not None else process_of(stacks)), stacks, idle)


def process_of(stacks: tuple[Stack, ...]) -> int:
    """The process of a main thread: Linux gives both one number. Other numbers only tell processes apart."""
    return next((stack.native_id for stack in stacks if stack.main), 0) % _MOST_PIDS or 1


def facts(speaker: Speaker, stacks: tuple[Stack, ...], idle: bool | None) -> Iterator[Fact]:
    """The facts that stacks of a process give."""
    if speaker.rank is not None and speaker.pid:
        yield Identity(speaker)
    yield StacksSeen(speaker, stacks, idle)


def _stacks(text: str) -> tuple[tuple[Stack, ...], bool | None]:
    """The threads, and whether the main one is idle."""
    stacks: list[Stack] = []
    idle: bool | None = None
    name, number, frames, state = "", 0, list[Frame](), ""
    held: dict[str, str] = {}
    indent = 0

    def close() -> None:
        nonlocal idle
        if not frames or len(stacks) >= MAX_THREADS:
            return
        main = name == "MainThread"
        idle = state == "idle" if main else idle
        stacks.append(
            Stack(given_name(name or str(number)), tuple(frames[::-1][-MAX_FRAMES:]), number, main, "gil" in state)
        )

    for line in text.split("\n"):
        if thread := _THREAD.match(line):
            close()
            name, state, frames, indent = thread[3] or "", thread[2], [], 0
            number = _number(thread[1])
        elif not state:
            continue
        elif (frame := _FRAME.match(line)) and (not indent or len(frame[1]) == indent):
            indent, held = len(frame[1]), {}
            if not _NATIVE.search(frame[3]):
                frames.append(_made(frame[3], int(frame[4] or 0), frame[2], held))
        elif frames and not _VARIABLES.match(line) and (local := _LOCAL.match(line)) and len(held) < MAX_LOCALS:
            held[given_name(local[1])] = given_name(local[2])
        elif not line.strip() and frames:
            close()
            frames, state = [], ""
    close()
    if stacks and not any(stack.main for stack in stacks) and (main := _main(stacks)) is not None:
        stacks[main] = Stack(
            stacks[main].thread, stacks[main].frames, stacks[main].native_id, True, stacks[main].holds_lock
        )
    return tuple(stacks), idle


def _main(stacks: list[Stack]) -> int | None:
    """Where no thread has a name: the one that began at the script."""
    return next((index for index, stack in enumerate(stacks) if stack.frames[0].function == "<module>"), None)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(text, 16) if text != "?" else 0


def _made(file: str, line: int, function: str, held: dict[str, str]) -> Frame:
    """py-spy shortens names to those below a folder of modules: ``torch/nn/modules/module.py``, ``threading.py``."""
    plain = file.replace("\\", "/")
    first = plain.partition("/")[0].removesuffix(".py")
    if first in _LIBRARIES and "/" in plain:
        plain = f"site-packages/{plain}"
    user = of_user(plain) and first not in _LIBRARIES and first not in _STANDARD and not plain.startswith("<")
    return Frame(plain, line, given_name(function), user, held)


# -- JSON


def _of_json(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """(from where, to where, its processes as py-spy writes them in text) of each list of threads."""
    decoder = json.JSONDecoder()
    start = text.find("[\n") if "[\n" in text else text.find("[{")
    for _ in range(_MOST):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
            yield start, end, list(map(_process, _by_process(value)))
        except UNDECODABLE:
            return
        start = text.find("[", end)


def _by_process(value: Any) -> Iterable[list[dict[str, Any]]]:
    found: dict[object, list[dict[str, Any]]] = {}
    for thread in cast("list[Any]", value) if isinstance(value, list) else ():
        if isinstance(thread, dict) and "frames" in thread:
            found.setdefault(str(thread.get("pid")), []).append(cast("dict[str, Any]", thread))
    return found.values()


def _process(threads: list[dict[str, Any]]) -> str:
    command = (threads[0].get("process_info") or {}).get("command_line", "")
    head = f"Process {threads[0].get('pid') or 0}: {_short(command)}"
    return "\n".join([head, *map(_thread, threads[:MAX_THREADS])])


def _thread(thread: dict[str, Any]) -> str:
    number = thread.get("os_thread_id") or thread.get("thread_id") or 0
    state = f"{'active' if thread.get('active') else 'idle'}{'+gil' if thread.get('owns_gil') else ''}"
    lines = [f'Thread {number} ({state}): "{_short(thread.get("thread_name") or "")}"']
    for frame in thread["frames"]:
        place = f"{_short(frame.get('filename') or frame.get('short_filename') or '?')}:{frame.get('line') or 0}"
        lines += [f"    {given_name(frame.get('name', '?'))} ({place})"]
        lines += [f"        {_short(own['name'])}: {_short(own['repr'])}" for own in frame.get("locals") or ()]
    return "\n".join(lines)


def _short(value: object) -> str:
    return one_line(str(value)[:990])
