from __future__ import annotations

import gzip
import os

import pytest

from ddpnb.errors import UsageError
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.loading import load
from tests.reports.reading import NCCL, OLD_WATCHDOG, PY_SPY, STORE
from tests.reports.told import report, waits


def test_several_files_of_several_kinds_make_one_recording(tmp_path):
    lines = OLD_WATCHDOG.splitlines(keepends=True)
    (tmp_path / "rank0.log").write_text("".join(line for line in lines if "[Rank 0]" in line))
    (tmp_path / "others.log").write_text("".join(line for line in lines if "[Rank 0]" not in line))
    (tmp_path / "stack.txt").write_text(
        'Process 11: python train.py --rank 1\nPython v3.11.7\n\nThread 11 (idle): "MainThread"\n    load (/home/me/data.py:12)\n'
    )
    taken = load(tmp_path)
    first = diagnose(taken).errors[0]
    assert (first.code, first.culprits, first.collective.seq) == ("DDP313", (1,), 1812)
    assert (1, "/home/me/data.py") in [(rank, site.file) for rank, site in first.where]
    assert {source.format for source in taken.report.sources} == {"NCCL watchdog log", "launcher's log", "py-spy dump"}


def test_the_name_of_a_file_says_nothing(tmp_path):
    (tmp_path / "dump.pickle").write_text(NCCL)
    (tmp_path / "picture.png").write_text("")
    assert diagnose(load(tmp_path)).errors[0].code == "DDP305"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_a_log_that_powershell_wrote(tmp_path, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "job.log").write_bytes(f"{mark}{STORE}".encode(encoding))
    assert diagnose(load(tmp_path / "job.log")).errors[0].code == "DDP102"


def test_a_start_that_timed_out_in_a_function_says_how_many_joined(tmp_path):
    at = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 20, in main\n    dist.init_process_group("nccl")\n'
    torch = '  File "/opt/torch/distributed/distributed_c10d.py", line 932, in init_process_group\n    _store_based_barrier(rank)\n'
    said = "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: k:1"
    (tmp_path / "job.log").write_text(f"{at}{torch}{said} (world_size=8, worker_count=7, timeout=0:30:00)\n")
    (error,) = diagnose(load(tmp_path / "job.log")).errors
    assert (error.code, "7 joined" in error.summary) == ("DDP102", True)
    text = f"{at}{torch}RuntimeError: it timed out\nworld_size=8\n"
    (tmp_path / "job.log").write_text(text.replace("\n", "\n[rank0]: ").join(("[rank0]: ", "\n")))
    (error,) = diagnose(load(tmp_path / "job.log")).errors
    assert error.summary.endswith("ranks 1-7 are in none of these files.")


def test_a_rank_that_lost_a_peer_says_on_which_host_it_was(tmp_path):
    said = "ncclRemoteError: A call failed possibly due to a network error.\nLast error:\nsocketProgress: Connection closed by "
    text = f"torch.distributed.DistBackendError: NCCL error in: x.cpp:1970\n{said}remote peer gpu-13.x<43122>\n"
    (tmp_path / "job.log").write_text("".join(f"[rank3]: {line}\n" for line in text.splitlines()))
    (error,) = diagnose(load(tmp_path / "job.log")).errors
    assert "Rank 3 lost the connection to another rank at gpu-13.x: " in error.summary
    with open(tmp_path / "job.log", "a") as log:
        log.write(
            "".join(f"[rank2]: {line}\n" for line in text.replace("remote peer gpu-13.x<43122>", "peer").splitlines())
        )
    (error,) = diagnose(load(tmp_path / "job.log")).errors
    assert error.summary.startswith("Ranks 2 and 3 lost the connection to another rank: "), "rank 2 names no host"


def test_a_compressed_log(tmp_path):
    (tmp_path / "job.log.1").write_bytes(gzip.compress(STORE.encode()))
    assert diagnose(load(tmp_path / "job.log.1")).errors[0].code == "DDP102"


def test_what_was_saved_is_loaded_by_its_content(tmp_path):
    report(waits(0, 57), size=2).save(tmp_path / "hang.ddpnb")
    os.rename(tmp_path / "hang.ddpnb", tmp_path / "hang")
    assert load(tmp_path / "hang") == report(waits(0, 57), size=2)
    (tmp_path / "job.log").write_text(PY_SPY)
    with pytest.raises(UsageError, match="recording of its own"):
        load([tmp_path / "hang", tmp_path / "job.log"])


@pytest.mark.parametrize(
    "content", [b"", b"hello\nworld\n", os.urandom(4096), b"\x00" * 100, b"[[" * 50_000, b"{" * 100_000]
)
def test_a_file_in_which_nothing_is_known(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match="nothing|not a|damaged|cannot|holds no"):
        load(tmp_path / "file")


def test_an_empty_folder(tmp_path):
    with pytest.raises(UsageError, match="empty folder"):
        load(tmp_path)


@pytest.mark.parametrize("path", [None, 7, [], "", [None], b"name", {"a": 1}])
def test_what_is_no_path(path):
    with pytest.raises(UsageError):
        load(path)


def test_texts_of_files_cannot_drive_the_terminal(tmp_path):
    text = OLD_WATCHDOG.replace("ALLREDUCE", "ALL\x07<b>\x1b]0;title\x07REDUCE")
    (tmp_path / "job.log").write_text(text)
    shown = str(diagnose(load(tmp_path)))
    assert "\x1b" not in shown and "\x07" not in shown
