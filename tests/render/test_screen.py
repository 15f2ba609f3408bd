"""What a terminal would show of a text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress
from tqdm import tqdm

from ddpnb.render.screen import as_seen


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("10%\r 20%\r100%\n", "100%\n"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("\x1b[31mred\x1b[0m\x1b[2K", ""),
        ("\x1b[31mred\x1b[0m", "red"),
        ("bell\x07", "bell�"),
        ("\tindented", "\tindented"),
        ("abcdef\rxy", "xycdef"),
        ("abcdef\rxy\x1b[K", "xy"),
        ("one\ntwo\x1b[1A\rONE\x1b[1B\rTWO\n", "ONE\nTWO\n"),
        ("ab\b\bcd", "cd"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b[999999999999C!", "a" + " " * 9999 + "!"),
        ("\x1b[5Aup\x1b[J", "up"),
    ],
)
def test_what_a_terminal_would_show(written, seen):
    assert as_seen(written) == seen


def test_nested_bars_of_tqdm_are_two_lines():
    out = io.StringIO()
    for _ in tqdm(range(3), file=out, desc="epochs", mininterval=0):
        for _ in tqdm(range(5), file=out, desc="batches", leave=False, mininterval=0):
            pass
    seen = as_seen(out.getvalue())
    assert seen.splitlines()[0].startswith("epochs: 100%")
    assert "batches" not in seen and len(seen.splitlines()) == 1


def test_a_progress_of_rich_is_its_last_state():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with Progress(console=console) as progress:
        task = progress.add_task("loading", total=4)
        for _ in range(4):
            progress.advance(task)
            progress.refresh()
    assert [line.split()[0] for line in as_seen(out.getvalue()).splitlines() if line.strip()] == ["loading"]
    assert "100%" in as_seen(out.getvalue())
