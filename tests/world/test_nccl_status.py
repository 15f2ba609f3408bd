"""What NCCL's RAS service says of processes: of real ones, by a server that plays recorded answers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import psutil
import pytest

from ddpnb.reports import facts
from ddpnb.world import nccl_status
from tests.ranks.nccl_ras import Server, job


@contextlib.contextmanager
def processes(address, count=2):
    """Processes that were told where the service listens."""
    started = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"NCCL_RAS_ADDR": address})
        for _ in range(count)
    ]
    for process in started:  # while a program begins, its environment is empty
        while "NCCL_RAS_ADDR" not in psutil.Process(process.pid).environ():
            time.sleep(0.01)
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.communicate(b"\n", timeout=240)


def test_an_answer_is_of_the_processes_that_were_asked_for():
    with Server("") as server, processes(server.address) as pids:
        server._status = [job({0: 5, 1: 5}, pids=pids)]
        answer = nccl_status.ask(pids)
        assert answer.path == server.address and not answer.messages
        server._status = [job({0: 5, 1: 5}, pids=[1, 2])]  # another job has the same port
        assert nccl_status.ask(pids) is None


def test_only_counts_that_stay_are_those_of_a_hang():
    with Server("") as server, processes(server.address) as pids:
        server._status = [job({0: 5, 1: 4}, pids=pids), job({0: 5, 1: 4}, pids=pids), job({0: 6, 1: 6}, pids=pids)]
        first, same, later = (nccl_status.ask(pids) for _ in range(3))

        def calls(found):
            return {fact.speaker.rank for fact in found.facts if isinstance(fact, facts.CallSeen)}

        assert calls(same.still(first)) == {0}
        assert calls(first.still(None)) == calls(later.still(same)) == set()


def test_checks_of_the_doctor():
    report = (
        "n:1 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 2 ranks in comm 0x1\n"
        "n:1 NCCL DIAG [INFO] NCCL environment: NCCL_DEBUG=INFO on rank(s) {0}\x1b[31m\n"
    )
    with Server("", diagnostics=report) as server, processes(server.address) as pids:
        server._status = [job({0: 5, 1: 5}, pids=pids)]
        ras, differ = nccl_status.checks(nccl_status.ask(pids), diagnose=True)
        assert (ras.name, ras.state) == ("NCCL RAS", "ok")
        assert ras.told == f"NCCL 2.30.7 answers at {server.address} for 2 ranks"
        assert (
            differ.state == "warning" and "NCCL_DEBUG=INFO on rank(s) {0}" in differ.told and differ.told.isprintable()
        )
        server._diagnostics = report.splitlines(keepends=True)[0]
        assert nccl_status.checks(nccl_status.ask(pids), diagnose=True)[1].state == "ok"
        assert len(nccl_status.checks(nccl_status.ask(pids), diagnose=False)) == 1
        server._status = [job({0: 5}, (1,), pids=pids)]
        (ras,) = nccl_status.checks(nccl_status.ask(pids), diagnose=False)
        assert ras.state == "warning" and "rank 1 does not answer" in ras.told


@pytest.mark.parametrize("text", ["", "{", "NCCL version 2.26.2\n", '{"communicators": [{"ranks": 3}]}'])
def test_an_answer_that_says_nothing(text):
    with Server(text) as server, processes(server.address, 1) as pids:
        assert nccl_status.ask(pids) is None
        (check,) = nccl_status.checks(nccl_status.ask(pids), diagnose=True)
        assert check.state == "unknown" and "NCCL_RAS_ENABLE" in check.todo
