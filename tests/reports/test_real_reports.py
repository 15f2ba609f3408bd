"""The reports of real runs in ``notebooks/reports``: what they show, and that they name no machine."""

from __future__ import annotations

import getpass
import pickletools
import re
import socket

import pytest

from ddpnb.rules.diagnose import diagnose
from ddpnb.world.loading import load
from tests.reports import real


@pytest.mark.parametrize("report", real.REPORTS, ids=lambda report: report.name)
def test_the_finding(report):
    assert real.found(report.name, diagnose(load(real.FOLDER / report.name))) == report


def texts():
    """(path, text) of all files; of a dump its strings."""
    for path in real.FOLDER.rglob("*.*"):
        if path.suffix == ".pickle":
            yield path, " ".join(str(value) for _, value, _ in pickletools.genops(path.read_bytes()))
        elif path.is_file() and "__pycache__" not in path.parts:
            yield path, path.read_text()


def test_they_name_no_machine():
    for path, text in texts():
        assert {*re.findall(r"(?<![\w.])/(?:home|root|tmp|work)/\w+(?:/\w+)?", text)} <= {
            "/home/user/project",
            "/home/user/env",
        }, path
        if path.suffix in (".log", ".txt", ".pickle"):
            assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text.replace("localhost", "")), path
            assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text), path


def test_they_are_small():
    assert sum(path.stat().st_size for path in real.FOLDER.rglob("*.*") if "__pycache__" not in path.parts) < 100_000
