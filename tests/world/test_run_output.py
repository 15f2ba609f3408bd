"""What is kept of a rank's log, and that logs whose ends are equal are told apart."""

from __future__ import annotations

from ddpnb.render import cells
from ddpnb.world.run_output import Log


def test_logs_that_differ_before_what_is_kept_are_two_blocks(tmp_path):
    outputs = {}
    for rank, first in enumerate("ab"):
        path = tmp_path / f"rank{rank}.log"
        path.write_text(first)
        log = Log(str(path), most=10)
        assert log.read().text == first
        with path.open("a") as file:
            file.write("and then the same")
        outputs[rank] = log.read()
    assert outputs[0].text == outputs[1].text == "n the same"
    assert [block.ranks for block in cells.fold(outputs)] == [(0,), (1,)]


def test_what_was_read_stays_when_the_file_is_removed(tmp_path):
    path = tmp_path / "rank0.log"
    path.write_text("last words")
    log = Log(str(path))
    log.read()
    path.unlink()
    assert log.read().text == "last words"
