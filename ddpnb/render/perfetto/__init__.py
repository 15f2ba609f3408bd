"""A Recording as a trace for https://ui.perfetto.dev, in Chrome's Trace Event Format (JSON).

A process for each rank; in it a track for optimizer steps, one for phases (start-up, data loaders, checkpoints), and one or
more for the calls of each group: asynchronous calls overlap, and slices of one track must not. The calls of one collective,
or a send and its receive, are one flow, in the order in which the ranks arrived. Written as it is made: a million calls need
no more memory than a few.
"""

from __future__ import annotations

import heapq
import os
import zlib
from collections.abc import Iterable, Iterator

from ddpnb.files import write_parts
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.render.perfetto.slices import streams
from ddpnb.render.perfetto.trace import Trace, us
from ddpnb.render.perfetto.tracks import names
from ddpnb.rules.diagnose import diagnose

_EVENTS_IN_PART = 2000
_LEVEL = 4  # of compression


def save(recording: Recording, path: str | os.PathLike[str]) -> None:
    """Write the trace: see ``Recording.to_perfetto``."""
    parts = (part.encode() for part in events(recording, diagnose(recording)))
    packed = isinstance(path, (str, os.PathLike)) and os.fsdecode(path).endswith(".gz")
    write_parts(path, _packed(parts) if packed else parts)


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL, wbits=31)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def events(recording: Recording, diagnosis: Diagnosis) -> Iterator[str]:
    """The parts of the file.

    Raises:
        UsageError: no time is recorded, as in most logs.
    """
    trace = Trace.of(recording)
    yield '{"displayTimeUnit":"ms","otherData":{"source":"ddpnb","clock":"the first event is at 0"},"traceEvents":[\n'
    yield ",\n".join(names(trace))
    part: list[str] = []
    ranks = sorted(trace.recording.ranks)
    every = [stream for rank in ranks for stream in streams(trace, rank, diagnosis)]
    for moment, _, _, text, key in heapq.merge(*every):
        part.append(f'{text},"ts":{us(moment - trace.origin)}{trace.flow(key) if key is not None else ""}}}')
        if len(part) >= _EVENTS_IN_PART:
            yield ",\n" + ",\n".join(part)
            part.clear()
    if part:
        yield ",\n" + ",\n".join(part)
    yield "\n]}\n"
