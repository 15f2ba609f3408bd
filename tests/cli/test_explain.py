"""``ddpnb explain`` on the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ddpnb.cli import main
from ddpnb.rules.catalogue import codes

DDPNB = [sys.executable, "-m", "ddpnb", "explain"]
ERROR = "RuntimeError: Timed out waiting 5000ms for recv operation to complete\n"


@pytest.fixture
def explain(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def run(*args: object) -> tuple[int, str, str]:
        status = main(["explain", *map(str, args)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.mark.parametrize("code", ["DDP301", "ddp301", "301", "collective-missing"])
def test_a_page(explain, code):
    status, out, err = explain(code)
    assert (status, err) == (0, "")
    assert out.startswith("DDP301 collective-missing")
    assert "# wrong" in out
    assert "\x1b" not in out


def test_several_pages_once_each(explain):
    status, out, _ = explain("401", "straggler", "DDP401")
    assert status == 0
    assert out.count("DDP401 unused-parameters  (chapter") == 1
    assert out.index("DDP401 unused-parameters") < out.index("DDP315 straggler  (chapter")


def test_without_words_all_codes(explain):
    status, out, _ = explain()
    assert status == 0
    assert all(f"  {code}  " in out for code in codes())
    assert "7 launch, host, logging" in out
    assert "ddpnb explain CODE" in out


def test_words(explain):
    status, out, _ = explain("barrier", "hang")
    assert status == 0
    assert out.startswith("  DDP301  collective-missing")
    assert "ddpnb explain DDP301 prints the page" in out
    assert len(out.splitlines()) < 30


def test_words_that_are_a_name(explain):
    assert explain("rank", "dead")[1].startswith("DDP311 rank-dead")


def test_words_of_an_error(explain):
    status, out, _ = explain("Timed out waiting 5000ms for recv operation to complete")
    assert status == 0
    assert out.startswith("Timed out after 5 s in a collective") and "[DDP301 collective-missing]\n" in out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["DDP999"], "DDP707"),
        (["301", "399"], "DDP317"),
        (["ddp30x"], "DDP301"),
        (["colective-missing"], "DDP301 collective-missing"),
        (["qwertz"], "All codes"),
        (["--file", "nowhere.log"], "cannot read 'nowhere.log'"),
        (["--file", "nowhere.log", "DDP301"], "--file cannot be combined with codes"),
    ],
)
def test_wrong_use(explain, args, says):
    status, out, err = explain(*args)
    assert (status, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_a_file(explain, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("step 1\nTraceback (most recent call last):\n" + ERROR)
    status, out, _ = explain("--file", log)
    assert status == 0
    assert out.startswith("Timed out after 5 s in a collective") and "[DDP301 " in out
    log.write_text("step 1\nstep 2\n")
    status, out, _ = explain("--file", log)
    assert status == 1
    assert "No distributed-training error" in out


@pytest.mark.parametrize("args", [["-"], pytest.param(["--file", "-"], marks=pytest.mark.full)])
def test_standard_input(args):
    done = subprocess.run([*DDPNB, *args], input=ERROR, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Timed out after 5 s in a collective") and "[DDP301 " in done.stdout


@pytest.mark.full
def test_standard_input_that_is_no_text():
    done = subprocess.run([*DDPNB, "-"], input=bytes(range(256)) * 100, capture_output=True, timeout=240, check=False)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_a_reader_that_went_away():
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(DDPNB)} {' '.join(codes())} | head -1; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout == "DDP101 bad-environment  (chapter 1: start-up)\n"
    assert done.stderr == ""


def test_the_help_shows_how_it_is_used(capsys):
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    assert "ddpnb explain barrier hang" in capsys.readouterr().out
