"""A server that plays recorded answers of NCCL's RAS service."""

from __future__ import annotations

import contextlib
import json
import socket
import threading


def job(counts, missing=(), pids=(), version="2.30.7"):
    """The JSON of one communicator, in the form of NCCL: the AllReduces of each rank, and the ranks that are missing."""
    ranks = [
        {
            "rank": rank, "host": "10.0.0.1", "pid": pids[rank] if pids else 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
            "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
            "collective_counts": {"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": count},
        }
        for rank, count in counts.items()
    ]  # fmt: skip
    absent = [
        {
            "rank": rank, "host": "10.0.0.1", "pid": pids[rank] if pids else 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
            "status": {"unresponsive": True, "considered_dead": False},
        }
        for rank in missing
    ]  # fmt: skip
    communicator = {
        "hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7e7:0xb824", "size": len(ranks) + len(absent),
        "ranks_count": len(ranks), "missing_ranks_count": len(absent), "ranks": ranks, "missing_ranks": absent,
    }  # fmt: skip
    whole = {
        "nccl_version": version, "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2026-01-01 12:00:00",
        "communicators_count": 1, "communicators": [communicator], "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }  # fmt: skip
    return json.dumps(whole, indent=2) + "\n"


class Server:
    """Answers as NCCL of this version does.

    Args:
        status: the answers to ``VERBOSE STATUS``, one after the other; the last one again and again.
        diagnostics: that to ``DIAGNOSTICS``; None: it is not known, as before NCCL 2.31.
        as_json: whether it has this format, as from NCCL 2.28.7 on.
        greeting: what it says first.
        hangs: after this command it says no more.
    """

    def __init__(self, *status, diagnostics=None, as_json=True, greeting="SERVER PROTOCOL 2\n", hangs=""):
        self._status, self._diagnostics, self._as_json = list(status), diagnostics, as_json
        self._greeting, self._hangs = greeting, hangs
        self.commands: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.where = self._listening.getsockname()
        self.address = "{}:{}".format(*self.where)
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listening.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self._answer(connection)

    def _answer(self, connection):
        for line in connection.makefile("r"):
            command = line.strip()
            self.commands.append(command)
            if self._hangs and command.startswith(self._hangs):
                connection.recv(1)
                return
            if command.startswith("CLIENT PROTOCOL"):
                answer = self._greeting
            elif command.startswith("TIMEOUT"):
                answer = "OK\n"
            elif command == "SET FORMAT json" and self._as_json:
                answer = "OK\n"
            elif command == "VERBOSE STATUS":
                connection.sendall((self._status.pop(0) if len(self._status) > 1 else self._status[0]).encode())
                return
            elif command == "DIAGNOSTICS" and self._diagnostics is not None:
                connection.sendall(self._diagnostics.encode())
                return
            else:
                answer = f"ERROR: Unknown command {command}\n"
            connection.sendall(answer.encode())
