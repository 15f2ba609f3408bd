"""Logs as people post them: the lines of a job, and what launchers, collectors, editors and archives make of them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

#: (the rank that wrote it, or None for the launcher; its text)
Lines = list[tuple[int | None, str]]


@dataclass(frozen=True)
class Fault:
    name: str
    lines: Lines
    code: str
    culprits: tuple[int, ...]


def _timeout(rank: int, op: str = "ALLREDUCE", size: int = 1024) -> tuple[int, str]:
    return rank, (
        f"[E1105 03:02:07.95{rank} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, "
        f"OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for 60007{rank} milliseconds before timing out."
    )


def _traceback(rank: int | None, error: str) -> Lines:
    return [
        (rank, "Traceback (most recent call last):"),
        (rank, '  File "/app/train.py", line 40, in <module>'),
        (rank, "    main()"),
        (rank, '  File "/app/train.py", line 12, in main'),
        (rank, "    loss.backward()"),
        *((rank, line) for line in error.split("\n")),
    ]


def _row(number: int, rank: int, code: int, time: str) -> str:
    signal = {-15: "SIGTERM", -9: "SIGKILL"}[code]
    return (
        f"[{number}]:\n  time      : 2026-09-07_{time}\n  host      : node\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {code} (pid: {10 + rank})\n  error_file: <N/A>\n  traceback : Signal {-code} ({signal}) received by PID {10 + rank}"
    )


_TABLE = "\n".join(
    (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED", "-" * 60, "Failures:",
        _row(1, 0, -15, "21:52:01"), _row(2, 1, -15, "21:52:01"), "-" * 60, "Root Cause (first observed failure):", _row(0, 2, -9, "21:51:58"),
        "=" * 60,
    )
)  # fmt: skip
_FINGERPRINT = (
    "CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, TensorShape=[{}], TensorDtypes=Float, TensorDeviceTypes=TensorOptions("
    "dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), "
    "memory_format=(nullopt)))"
)
_MISMATCH = (
    f"RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: {_FINGERPRINT.format(10)}, but Rank 0 "
    f"is running collective: {_FINGERPRINT.format(12)}.Collectives differ in the following aspects: \t Tensor Tensor shapes: 10vs 12"
)
FAULTS = (
    Fault(
        "watchdog",
        [
            _timeout(0), _timeout(2),
            (1, "[E1105 03:02:08.951 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a "
             "collective timeout from  rank 0 and we will try our best to dump the debug info. Last enqueued NCCL work: 56, last completed "
             "NCCL work: 56."),
        ], "DDP301", (1,),
    ),
    Fault("operations", [_timeout(0), _timeout(1), _timeout(2), _timeout(3, "BROADCAST", 99)], "DDP302", (3,)),
    Fault("exception", [(0, "step 10"), *_traceback(1, "ValueError: bad sample"), (0, "step 11")], "DDP312", (1,)),
    Fault("table", [(None, line) for line in _TABLE.split("\n")], "DDP311", (2,)),
    Fault("sizes", _traceback(1, _MISMATCH), "DDP303", (0, 1)),
    Fault(
        "connection",
        [
            *_traceback(1, "ValueError: bad sample"),
            *_traceback(0, "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:31485"),
        ], "DDP312", (1,),
    ),
    Fault(
        "memory",
        [(0, "step 10"), *_traceback(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of "
                                     "79.10 GiB of which 1.21 GiB is free.")], "DDP205", (1,),
    ),
    Fault(
        "gradients",
        _traceback(
            1,
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
            "your module has parameters that were not used in producing loss.\nParameters which did not receive grad for rank 1: head.bias",
        ), "DDP401", (1,),
    ),
    Fault(
        "same GPU",
        _traceback(
            1,
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL "
            "version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : "
            "rank 1 and rank 0 both on CUDA device 34000",
        ), "DDP201", (0, 1),
    ),
)  # fmt: skip

Mangle = Callable[[Lines], dict[str, bytes]]  # files by name


def plain(lines: Lines) -> list[str]:
    """As torchrun writes them."""
    return [text if rank is None else f"[rank{rank}]: {text}" for rank, text in lines]


def _file(lines: list[str], name: str = "train.log", end: str = "\n") -> dict[str, bytes]:
    return {name: (end.join(lines) + end).encode()}


def _ranked(template: str, launcher: str = "") -> Mangle:
    """A prefix that names the rank; lines of the launcher have another one."""

    def mangle(lines: Lines) -> dict[str, bytes]:
        return _file(
            [
                (launcher if rank is None else template.format(r=rank, p=4000 + (rank or 0), t=f"{turn:02}")) + text
                for turn, (rank, text) in enumerate(lines)
            ]
        )

    return mangle


def _before(template: str) -> Mangle:
    """A prefix before torchrun's."""
    return lambda lines: _file(
        [template.format(t=f"{turn:02}", n=turn + 1) + line for turn, line in enumerate(plain(lines))]
    )


def _bytes(write: Callable[[str], bytes], name: str = "train.log") -> Mangle:
    return lambda lines: {name: write("\n".join(plain(lines)) + "\n")}


def _json(record: Callable[[int, str], dict[str, object]]) -> Mangle:
    return lambda lines: _file([json.dumps(record(turn, line)) for turn, line in enumerate(plain(lines))])


def _csv(lines: Lines, *, backwards: bool = False, delimiter: str = ",", header: bool = True) -> dict[str, bytes]:
    text = io.StringIO()
    table = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    rows = [[f"2026-05-19T10:10:{turn:02}.000Z", "node1", line] for turn, line in enumerate(plain(lines))]
    table.writerows([["timestamp", "host", "message"]] * header + (rows[::-1] if backwards else rows))
    return {"export.csv": text.getvalue().encode()}


def _tar(mode: str, lines: Lines, *, by_rank: bool = False) -> dict[str, bytes]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{mode}") as archive:
        for name, data in (_by_rank(lines) if by_rank else _file(plain(lines))).items():
            entry = tarfile.TarInfo(f"logs/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return {f"logs.tar.{mode}": packed.getvalue()}


def _zip(files: dict[str, bytes]) -> dict[str, bytes]:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"logs/{name}", data)
    return {"logs.zip": packed.getvalue()}


def _by_rank(lines: Lines) -> dict[str, bytes]:
    """A file for each rank, and one of the launcher."""
    texts: dict[str, list[str]] = {}
    for rank, text in lines:
        texts.setdefault("launcher.log" if rank is None else f"rank{rank}.log", []).append(text)
    return {name: ("\n".join(some) + "\n").encode() for name, some in texts.items()}


def _headed(template: str) -> Mangle:
    """The logs of all ranks in one file, below headings."""

    def mangle(lines: Lines) -> dict[str, bytes]:
        joined: list[str] = []
        for name, data in _by_rank(lines).items():
            rank = name.removeprefix("rank").removesuffix(".log")
            joined += [template.format(name=name, r=rank) if rank.isdigit() else "", *data.decode().splitlines(), ""]
        return _file(joined)

    return mangle


def _wrapped(width: int) -> Mangle:
    def mangle(lines: Lines) -> dict[str, bytes]:
        return _file([line[at : at + width] for line in plain(lines) for at in range(0, max(len(line), 1), width)])

    return mangle


def _loki(lines: Lines) -> dict[str, bytes]:
    """Grafana's export, the newest line first."""
    records = [
        {"line": line, "timestamp": str(1_716_113_429_000_000_000 + turn), "date": f"2026-05-19T10:10:{turn:02}.000Z", "fields": {"pod": "job-0"}}
        for turn, line in enumerate(plain(lines))
    ]  # fmt: skip
    return {"export.json": json.dumps(records[::-1], indent=2).encode()}


def _cloudwatch(lines: Lines) -> dict[str, bytes]:
    events = [
        {
            "logStreamName": "job/0",
            "timestamp": 1_716_113_429_000 + turn,
            "message": line,
            "ingestionTime": 1_716_113_429_900,
        }
        for turn, line in enumerate(plain(lines))
    ]
    return {"events.json": json.dumps({"events": events, "searchedLogStreams": []}, indent=4).encode()}


def _quoted(lines: Lines) -> dict[str, bytes]:
    return _file(["> It failed:", "> ```", *(f"> {line}".rstrip() for line in plain(lines)), "> ```", "", "Any idea?"])


MANGLINGS: dict[str, Mangle] = {
    # launchers and frameworks
    "torchrun": _ranked("[rank{r}]: "),
    "torchrun-tee": _ranked("[default{r}]:"),
    "mpirun": _ranked("[1,{r}]<stderr>:"),
    "mpirun-blank": _ranked("[1,{r}]<stderr>: "),
    "horovodrun": _ranked("[{r}]<stderr>:"),
    "srun": _ranked("{r}: "),
    "srun-padded": _ranked("  {r}: "),
    "sagemaker": _ranked("[1,mpirank:{r},algo-1]<stderr>:"),
    "determined": _ranked("[2026-02-27T21:35:{t}Z] ab [rank={r}] || ", "[2026-02-27T21:35:28Z] ab || "),
    "ray-rank": _ranked("(Worker[rank={r}] pid={p}, ip=10.0.0.1) "),
    "ray": _before("\x1b[36m(RayTrainWorker pid=4001, ip=10.0.0.1)\x1b[0m "),
    "skypilot": _ranked("(worker1, rank={r}, pid={p}, ip=10.0.0.1) ", "(head, rank=0, pid=3, ip=10.0.0.1) "),
    "rank-date": _ranked("[RANK {r}] 2026-05-19 10:10:{t},701 [ERROR] ", "2026-05-19 10:10:29,701 [ERROR] "),
    "date-rank": _ranked("2026-05-19 10:10:{t},701 - rank {r} - ERROR - ", "2026-05-19 10:10:29,701 - launcher - ERROR - "),
    "lightning": _ranked("[rank: {r}] "),
    "rank-bar": _ranked("rank{r} | "),
    "rank-colon": _ranked("rank {r}: "),
    "rank-in-angles": _ranked("<rank {r}> "),
    "intel-mpi": _ranked("[{r}] "),
    "vllm": _ranked("(VllmWorker rank={r} pid={p}) ERROR 05-19 10:10:{t} [multiproc_executor.py:522] ", "INFO 05-19 10:10:29 [core.py:58] "),
    "deepspeed": _ranked("[2026-05-19 10:10:{t},701] [ERROR] [logging.py:96:log_dist] [Rank {r}] ", "[2026-05-19 10:10:29,701] [INFO] [launch.py:319:sigkill_handler] "),
    "nemo": _ranked("[NeMo E 2026-05-19 10:10:{t} exceptions:59 rank:{r}] ", "[NeMo I 2026-05-19 10:10:29 launcher:59] "),
    # collectors
    "kubectl-times": _before("2026-05-19T10:10:{t}.123456789Z "),
    "containerd": _before("2026-05-19T10:10:{t}.123456789Z stderr F "),
    "zone": _before("2026-05-19T10:10:{t}.123+02:00 "),
    "date-time": _before("2026-05-19 10:10:{t}.701 "),
    "date-brackets": _before("[2026-05-19 10:10:{t}] "),
    "slashes": _before("2026/05/19 10:10:{t} "),
    "time": _before("10:10:{t} "),
    "time-brackets": _before("[10:10:{t}] "),
    "syslog": _before("May 19 10:10:{t} node1 python[4711]: "),
    "journald": _before("May 19 10:10:{t} node1 systemd-train[4711]: "),
    "syslog-5424": _before("<134>1 2026-05-19T10:10:{t}.003Z node1 train 4711 - - "),
    "epoch": _before("17161134{t}.123456 "),
    "loguru": _before("2026-05-19 10:10:{t}.701 | ERROR    | launcher:stream:122 - "),
    "python-logging": _before("2026-05-19 10:10:{t},701 ERROR launcher "),
    "kubectl-prefix": _before("[pod/train-0/pytorch] "),
    "stern": _before("train-0 pytorch "),
    "torchx": _before("trainer/0 "),
    "pdsh": _before("node1: "),
    "pdsh-address": _before("10.0.0.1: "),
    "compose": _before("worker-1  | "),
    "stream": _before("[stderr] "),
    "kaggle": _before("12.{t}s\t{n}\t"),
    # editors, terminals, issues
    "cat-n": _before("    {n}\t"),
    "grep-n": _before("{n}:"),
    "line-numbers": _before("{n}: "),
    "grep": _before("logs/train.log:{n}:"),
    "indented": _before("    "),
    "tabs": _before("\t"),
    "quoted": _before("> "),
    "quoted-twice": _before("> > "),
    "quoted-fence": _quoted,
    "fence": lambda lines: _file(["### Log", "", "```text", *plain(lines), "```", "", "What is it?"]),
    "list-fence": lambda lines: _file(["1. Log:", "   ```", *(f"   {line}" for line in plain(lines)), "   ```"]),
    "html": lambda lines: _file(["<details><summary>log</summary>", "<pre>", *plain(lines), "</pre>", "</details>"]),
    "colours": _before("\x1b[31m\x1b[1m"),
    "progress": lambda lines: _file([f"  0%|          | 0/10\r 10%|#         | 1/10\r{line}" for line in plain(lines)]),
    "wrapped-80": _wrapped(80),
    "wrapped-120": _wrapped(120),
    "wrapped-97": _wrapped(97),
    "tail-headings": _headed("==> {name} <=="),
    "bold-headings": _headed("**Rank {r}:**"),
    "hash-headings": _headed("## rank {r}"),
    "rule-headings": _headed("----- rank {r} -----"),
    # records
    "docker-json": _json(lambda turn, line: {"log": line + "\n", "stream": "stderr", "time": f"2026-05-19T10:10:{turn:02}Z"}),
    "json": _json(lambda turn, line: {"timestamp": f"2026-05-19T10:10:{turn:02}Z", "level": "error", "message": line}),
    "fluentd": _json(lambda turn, line: {"log": line, "kubernetes": {"pod_name": "train-0", "container_name": "pytorch"}, "n": turn}),
    "journald-json": _json(lambda turn, line: {"__REALTIME_TIMESTAMP": str(turn), "_HOSTNAME": "node1", "_PID": "4711", "MESSAGE": line}),
    "text-payload": lambda lines: {"gcp.json": json.dumps([{"textPayload": line, "insertId": "a"} for line in plain(lines)], indent=2).encode()},
    "loki": _loki,
    "cloudwatch": _cloudwatch,
    "csv": _csv,
    "csv-newest-first": lambda lines: _csv(lines, backwards=True),
    "csv-no-header": lambda lines: _csv(lines, header=False),
    "tsv": lambda lines: _csv(lines, delimiter="\t"),
    # bytes
    "crlf": _bytes(lambda text: text.replace("\n", "\r\n").encode()),
    "cr": _bytes(lambda text: text.replace("\n", "\r").encode()),
    "bom": _bytes(lambda text: text.encode("utf-8-sig")),
    "utf-16": _bytes(lambda text: text.encode("utf-16")),
    "utf-16-be": _bytes(lambda text: f"\ufeff{text}".encode("utf-16-be")),
    "utf-16-le-unmarked": _bytes(lambda text: text.encode("utf-16-le")),
    "utf-16-be-unmarked": _bytes(lambda text: text.encode("utf-16-be")),
    "latin-1": _bytes(lambda text: f"mod\xe8le charg\xe9\n{text}fin de la t\xe2che\n".encode("latin-1")),
    "nul-first": _bytes(lambda text: bytes(3000) + text.encode()),
    "nul-between": _bytes(lambda text: text.replace("\n", "\n\0\0").encode()),
    # archives
    "gz": _bytes(lambda text: gzip.compress(text.encode()), "train.log.gz"),
    "bz2": _bytes(lambda text: bz2.compress(text.encode()), "train.log.bz2"),
    "xz": _bytes(lambda text: lzma.compress(text.encode()), "train.log.xz"),
    "zip": lambda lines: _zip(_file(plain(lines))),
    "zip-of-gz": lambda lines: _zip({"train.log.gz": gzip.compress("\n".join(plain(lines)).encode())}),
    "tar": lambda lines: _tar("", lines),
    "tar.gz": lambda lines: _tar("gz", lines),
    "tar.bz2": lambda lines: _tar("bz2", lines),
    "tar.xz": lambda lines: _tar("xz", lines),
    "tar.gz-by-rank": lambda lines: _tar("gz", lines, by_rank=True),
    "by-rank": _by_rank,
    "zip-by-rank": lambda lines: _zip(_by_rank(lines)),
}  # fmt: skip
