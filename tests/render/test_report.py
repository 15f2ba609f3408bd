from __future__ import annotations

from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.report import Report, Source
from ddpnb.render.report import sources


def _read(*files: tuple[str, str], size: int = 4, known: bool = True) -> Recording:
    report = Report(tuple(Source(*file) for file in files), world_size_known=known)
    return Recording(size, {rank: RankRecord(rank, pid=rank + 1) for rank in range(size)}, report=report)


def test_files_and_ranks():
    assert sources(_read(("a.log", "log"), ("a.log", "stacks"))) == "Read a.log (log, stacks): found ranks 0-3 of 4."
    assert sources(_read(("a", "log"), ("b", "log"), size=1, known=False)) == "Read a, b (log): found rank 0."
    many = sources(_read(*((f"dump_{rank}", "dump") for rank in range(9))))
    assert many == "Read 9 files such as dump_0 (dump): found ranks 0-3 of 4."
    assert sources(_read(("a", "log"), size=0)) == "Read a (log): which rank wrote it is not known."


def test_a_recording_of_ddpnb_was_not_read_from_files():
    assert sources(Recording(1, {})) == ""
