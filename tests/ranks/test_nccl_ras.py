"""The client of NCCL's RAS service, and a server with recorded answers in its place: NCCL cannot run here."""

from __future__ import annotations

import pytest

from ddpnb.ranks import nccl_ras
from tests.ranks.nccl_ras import Server, job

TEXT = "NCCL version 2.26.2 compiled with CUDA 12.6\nCUDA runtime version 12060, driver version 12060\n\nJob summary\n"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(nccl_ras, "_ANSWER_S", 3.0)


def test_json_is_asked_for():
    with Server(job({0: 5, 1: 5})) as server:
        assert nccl_ras.status(server.where) == job({0: 5, 1: 5})
        assert server.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]


def test_an_older_one_answers_in_text():
    with Server(TEXT, as_json=False) as server:
        assert nccl_ras.status(server.where) == TEXT


def test_diagnostics():
    report = "node:12 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 2 ranks in comm 0x1\n"
    with Server(diagnostics=report) as server:
        assert nccl_ras.diagnostics(server.where) == report
    with Server() as server:
        assert nccl_ras.diagnostics(server.where) == ""
    with Server(diagnostics="BUSY: diagnostics already in progress\n") as server:
        assert nccl_ras.diagnostics(server.where) == ""


def test_nobody_listens():
    with Server("") as server:
        pass
    assert nccl_ras.status(server.where) == ""


@pytest.mark.parametrize(
    "server",
    [
        {"greeting": "HTTP/1.1 400 Bad Request\r\n\r\n"},
        {"greeting": "x" * 100_000},
        {"greeting": "\0\xff\n"},
        {"greeting": ""},
        {"hangs": "CLIENT"},
        {"hangs": "TIMEOUT"},
        {"hangs": "VERBOSE"},
    ],
    ids=str,
)
def test_something_else_listens(server, monkeypatch):
    monkeypatch.setattr(nccl_ras, "_ANSWER_S", 0.3)
    monkeypatch.setattr(nccl_ras, "_GREETING_S", 0.3)
    with Server("{", **server) as other:
        assert nccl_ras.status(other.where) == ""


def test_an_answer_without_end(monkeypatch):
    monkeypatch.setattr(nccl_ras, "_LONGEST", 100_000)
    with Server("x" * 300_000) as server:
        assert nccl_ras.status(server.where) == ""


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, ("localhost", 28028)),
        ({"NCCL_RAS_ADDR": "node3:12345"}, ("node3", 12345)),
        ({"NCCL_RAS_ADDR": "[fe80::1]:7"}, ("fe80::1", 7)),
        ({"NCCL_RAS_ADDR": "0.0.0.0:7"}, ("127.0.0.1", 7)),
        ({"NCCL_RAS_ADDR": "[::]:7"}, ("::1", 7)),
        ({"NCCL_RAS_ENABLE": "0"}, None),
        ({"NCCL_RAS_ADDR": "node3"}, None),
        ({"NCCL_RAS_ADDR": "node3:99999999999"}, None),
        ({"NCCL_RAS_ADDR": ":\u0663"}, None),
    ],
)
def test_addresses(environment, where):
    assert nccl_ras.address(environment) == where
