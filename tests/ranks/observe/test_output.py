from __future__ import annotations

import io

import pytest

from ddpnb.ranks.observe.output import Stream


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Log:
    """The file that a rank writes to."""

    def __init__(self, path) -> None:
        self.path = path
        path.touch()

    def write(self, text: str | bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def logs(tmp_path):
    return [Log(tmp_path / f"rank{rank}.log") for rank in range(2)]


def stream(logs, target, limit=None) -> Stream:
    return Stream({rank: str(log.path) for rank, log in enumerate(logs)}, target, limit)


# -- lines and prefixes


def test_every_line_has_its_rank(logs):
    target = io.StringIO()
    logs[0].write("a\nb\n")
    logs[1].write("c\n")
    stream(logs, target).pump()
    assert target.getvalue() == "[rank 0] a\n[rank 0] b\n[rank 1] c\n"


def test_prefixes_are_equally_wide(tmp_path):
    logs = {rank: str(tmp_path / f"{rank}.log") for rank in (0, 9, 10)}
    for rank, path in logs.items():
        with open(path, "w") as file:
            file.write(f"{rank}\n")
    target = io.StringIO()
    Stream(logs, target).pump()
    assert target.getvalue() == "[rank  0] 0\n[rank  9] 9\n[rank 10] 10\n"


def test_only_what_has_come_since_is_copied(logs):
    target = io.StringIO()
    copy = stream(logs, target)
    logs[0].write("a\n")
    copy.pump()
    copy.pump()
    logs[0].write("b\n")
    copy.pump()
    assert target.getvalue() == "[rank 0] a\n[rank 0] b\n"


def test_a_line_that_has_not_ended_is_held(logs):
    target = io.StringIO()
    copy = stream(logs, target)
    logs[0].write("half")
    copy.pump()
    assert target.getvalue() == ""
    logs[0].write(" and half\nnext")
    copy.pump()
    assert target.getvalue() == "[rank 0] half and half\n"


def test_the_last_pump_ends_unfinished_lines(logs):
    target = io.StringIO()
    copy = stream(logs, target)
    logs[0].write("no newline")
    copy.pump(last=True)
    copy.pump(last=True)
    assert target.getvalue() == "[rank 0] no newline\n"


def test_a_character_that_comes_in_two_parts_stays_whole(logs):
    target = io.StringIO()
    copy = stream(logs, target)
    for part in ("grö".encode()[:-1], "grö".encode()[-1:] + b"\n"):
        logs[0].write(part)
        copy.pump()
    assert target.getvalue() == "[rank 0] grö\n"


def test_bytes_that_are_no_text_are_shown_as_such(logs):
    target = io.StringIO()
    logs[0].write(b"\xff\xfe\n")
    stream(logs, target).pump()
    assert target.getvalue() == "[rank 0] \ufffd\ufffd\n"


def test_empty_lines_are_kept(logs):
    target = io.StringIO()
    logs[0].write("\n\na\n")
    stream(logs, target).pump()
    assert target.getvalue() == "[rank 0] \n[rank 0] \n[rank 0] a\n"


def test_output_larger_than_a_block_is_copied_at_once(logs):
    target = io.StringIO()
    logs[0].write("0123456789\n" * 120_000)
    stream(logs, target).pump()
    assert target.getvalue() == "[rank 0] 0123456789\n" * 120_000


def test_a_line_without_end_is_not_held_for_ever(logs):
    target = io.StringIO()
    logs[0].write("x" * 200_000)
    stream(logs, target).pump()
    assert target.getvalue().count("x") == 200_000


def test_a_file_that_is_not_there_yet_is_read_when_it_is(tmp_path):
    target = io.StringIO()
    copy = Stream({0: str(tmp_path / "later.log")}, target)
    copy.pump()
    (tmp_path / "later.log").write_text("here\n")
    copy.pump(last=True)
    assert target.getvalue() == "[rank 0] here\n"


def test_no_ranks_and_no_target(logs):
    Stream({}, io.StringIO()).pump(last=True)
    logs[0].write("kept in the file\n")
    stream(logs, None).pump(last=True)
    assert logs[0].path.read_text() == "kept in the file\n"


# -- colours


def test_prefixes_are_coloured_on_a_terminal_only(logs, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for log in logs:
        log.write("a\n")
    terminal, file = Terminal(), io.StringIO()
    stream(logs, terminal).pump()
    stream(logs, file).pump()
    first, second = terminal.getvalue().splitlines()
    assert first.startswith("\x1b[")
    assert first.endswith("m[rank 0] \x1b[0ma")
    assert first.split("[rank")[0] != second.split("[rank")[0]
    assert "\x1b" not in file.getvalue()


# -- the limit


def test_past_the_limit_the_copy_stops_with_a_notice(logs):
    target = io.StringIO()
    copy = stream(logs, target, limit=40)
    logs[0].write("x" * 100 + "\n")
    copy.pump()
    shown = target.getvalue()
    assert shown.startswith("[rank 0] xxx")
    assert shown.count("x") == 40 - len("[rank 0] ")
    assert str(logs[0].path.parent) in shown
    logs[1].write("more\n")
    copy.pump(last=True)
    assert target.getvalue() == shown


def test_the_limit_is_one_for_all_ranks(logs):
    target = io.StringIO()
    copy = stream(logs, target, limit=30)
    for log in logs:
        log.write("0123456789\n")
    copy.pump()
    assert target.getvalue().startswith("[rank 0] 0123456789\n[rank 1] 0\n")
    assert "output truncated" in target.getvalue()


def test_what_just_fits_is_shown_without_a_notice(logs):
    target = io.StringIO()
    logs[0].write("abc\n")
    stream(logs, target, limit=len("[rank 0] abc\n")).pump(last=True)
    assert target.getvalue() == "[rank 0] abc\n"


def test_output_past_the_limit_stays_in_the_file(logs):
    logs[0].write("x" * 100 + "\n")
    stream(logs, io.StringIO(), limit=10).pump(last=True)
    assert logs[0].path.read_text() == "x" * 100 + "\n"


# -- readers that go away


def test_a_target_that_was_closed_is_let_go(logs):
    target = io.StringIO()
    copy = stream(logs, target)
    logs[0].write("a\n")
    copy.pump()
    target.close()
    logs[0].write("b\n")
    copy.pump()
    copy.pump(last=True)
    assert logs[0].path.read_text() == "a\nb\n"


def test_a_broken_pipe_is_let_go_after_one_attempt(logs):
    class Pipe(io.StringIO):
        attempts = 0

        def write(self, text):
            self.attempts += 1
            raise BrokenPipeError

    target = Pipe()
    copy = stream(logs, target)
    for log in logs:
        log.write("a\n")
    copy.pump()
    copy.pump(last=True)
    assert target.attempts == 1


def test_a_character_that_the_target_cannot_show_does_not_end_the_copy(logs):
    """A terminal of another encoding than UTF-8, and a progress bar or an emoji."""
    written = io.BytesIO()
    target = io.TextIOWrapper(written, encoding="ascii")
    copy = stream(logs, target)
    logs[0].write("→ first\n")
    copy.pump()
    logs[0].write("second\n")
    copy.pump()
    assert b"[rank 0] second\n" in written.getvalue()
