"""The names and the order of the processes and tracks of a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ddpnb.render.perfetto.trace import PHASES, STEPS, Trace
from ddpnb.render.text import one_line


def names(trace: Trace) -> Iterator[str]:
    """The metadata: names and order of processes and tracks."""
    for place, rank in enumerate(sorted(trace.recording.ranks)):
        pid = trace.pids[rank]
        yield _metadata("process_name", pid, None, {"name": f"rank {rank}"})
        yield _metadata("process_sort_index", pid, None, {"sort_index": place})
        device = trace.recording.ranks[rank].device
        if device:
            yield _metadata("process_labels", pid, None, {"labels": one_line(device, 40)})
        tracks = [(STEPS, "optimizer steps"), (PHASES, "phases")]
        for key, group in trace.group_of.items():
            for lane in range(trace.lanes.get((rank, key), 0)):
                more = f" ({lane + 1})" if lane else ""
                tracks.append((trace.track(key, lane), f"{one_line(str(group), 80)}{more}"))
        for track, name in tracks:
            yield _metadata("thread_name", pid, trace.tid(rank, track), {"name": name})
            yield _metadata("thread_sort_index", pid, trace.tid(rank, track), {"sort_index": track})


def _metadata(name: str, pid: int, tid: int | None, args: dict[str, Any]) -> str:
    where = {"pid": pid} if tid is None else {"pid": pid, "tid": tid}
    return json.dumps({"name": name, "ph": "M", **where, "args": args}, separators=(",", ":"))
