"""Which tests ``make gpu`` runs, and that it fails where it can run none."""

from __future__ import annotations

import pytest

from tests.gpu import __main__ as command


@pytest.mark.parametrize(("count", "markers"), [(0, ""), (1, "gpu and not multigpu"), (2, "gpu"), (8, "gpu")])
def test_tests_by_the_number_of_gpus(count, markers):
    chosen, told = command.chosen(count)
    assert chosen == markers and told.startswith("make gpu: ")


def test_without_a_gpu_nothing_is_run_and_that_is_no_success(monkeypatch, capsys):
    monkeypatch.setattr(command, "count_gpus", lambda: 0)
    monkeypatch.setattr(pytest, "main", lambda _: 0)
    assert command.main() == 1
    assert "no test was run" in capsys.readouterr().out
