"""``ddpnb run`` as a stranger types it: exit status, verdict file, messages, nothing left behind."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time

import pytest

from ddpnb import diagnose, load
from ddpnb.cli import main
from ddpnb.cli.run import save
from ddpnb.errors import LaunchError, WorldError
from ddpnb.recording.findings import Diagnosis
from tests.cli.commands import DDPNB, assert_all_ended, begin, ddpnb, family, left_by, refused
from tests.conftest import VICTIMS


def test_hang(tmp_path, cli):
    results = ("--json", "v.json", "--save", "hang.ddpnb")
    done = cli("run", "-n", 3, "--fork", *results, VICTIMS / "missing.py", "early_return", cwd=tmp_path)
    assert done.returncode == 3
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert (verdict["schema"], verdict["outcome"], verdict["world_size"]) == (2, "hang", 3)
    assert verdict["exit_codes"] == {"0": None, "1": 0, "2": None}
    finding = verdict["findings"][0]
    assert (finding["code"], finding["name"], finding["severity"]) == ("DDP301", "collective-missing", "error")
    assert (finding["culprits"], finding["waiting"]) == ([1], [0, 2])
    assert finding["collective"] == {
        "op": "all_reduce", "group": "default_pg", "seq": 1, "shapes": [[8]], "dtypes": ["float32"],
    }  # fmt: skip
    assert {"rank", "file", "line", "function"} == set(finding["where"][0])
    assert set(verdict["timing"]) == {"launch_s", "run_s", "diagnosis_s"}
    assert verdict["timing"]["diagnosis_s"] > 0
    (loaded,) = diagnose(load(tmp_path / "hang.ddpnb")).findings
    assert (loaded.remedy, len(loaded.evidence)) == (finding["remedy"], len(finding["evidence"]))
    assert (loaded.code, loaded.culprits, loaded.waiting) == ("DDP301", (1,), (0, 2))
    assert "DDP301" in done.stderr and "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python reports lines from 3.12 on")
def test_the_source_with_the_ranks_that_ran_its_lines(tmp_path, cli):
    done = cli(
        "run", "-n", 2, "--fork", "--lines", "--save", "hang.ddpnb", VICTIMS / "missing.py", "early_return", cwd=tmp_path
    )  # fmt: skip
    assert done.returncode == 3
    lines = [record.executed for _, record in sorted(load(tmp_path / "hang.ddpnb").ranks.items())]
    first, second = ({line.site for line in of_rank.lines} for of_rank in lines)
    text = (VICTIMS / "missing.py").read_text().splitlines()
    assert any(text[site.line - 1].strip().startswith("return") for site in second - first)
    assert [of_rank.windows[0].number for of_rank in lines] == [1, 1]
    card, _, source = done.stderr.partition("\n\n" + str(VICTIMS / "missing.py"))
    assert "DDP301" in card
    first = next(line for line in source.splitlines() if line.startswith(">"))
    assert first.split()[2:] == ["·", "●", "only", "rank", "1", "return"]
    assert "dist.all_reduce(torch.ones(8))" in next(line for line in source.splitlines() if "only rank 0" in line)
    shown = cli("diagnose", tmp_path / "hang.ddpnb", "--lines-of", "missing.py")
    assert shown.returncode == 3 and first.split() in [line.split() for line in shown.stderr.splitlines()]
    shown = cli("diagnose", tmp_path / "hang.ddpnb", "--lines-of", "no.py")
    assert shown.returncode == 3 and "no rank ran a line of 'no.py'" in shown.stderr


def test_success_and_output(tmp_path, cli):
    done = cli("run", "-n", 2, "--fork", "--log-dir", "logs", VICTIMS / "alone.py", "0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "ddpnb: no process group was made: nothing to diagnose\n")
    assert sorted(done.stdout.splitlines()) == [f"[rank {rank}] hello {VICTIMS / 'alone.py'} 0" for rank in range(2)]
    assert sorted(os.listdir(tmp_path / "logs")) == ["rank0.log", "rank1.log"]


def test_a_run_without_findings_is_one_line_or_none(tmp_path, cli):
    script = tmp_path / "s.py"
    script.write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ndist.all_reduce(torch.ones(2))\n"
    )
    assert cli("run", "-n", 2, "--fork", script).stderr == "ddpnb: ok: 2 ranks, 1 collective on each\n"
    assert cli("run", "-n", 2, "--fork", "--quiet", script).stderr == ""


def test_what_python_cannot_parse_is_said_once(tmp_path, cli):
    (tmp_path / "s.py").write_text("import torch\nx = = 3\n")
    done = cli("run", "-n", 2, "--fork", "s.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("x = = 3") == 1 and "Fix: Correct that line" in done.stderr, done.stderr


def test_the_scripts_own_status(tmp_path, cli):
    script = tmp_path / "s.py"
    script.write_text("import os, sys\nif os.environ['RANK'] == '1': sys.exit(9)\n")
    done = cli("run", "-n", 2, "--fork", "--patience", 2, script)
    assert done.returncode == 9
    assert "sys.exit(9)" in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run"], "SCRIPT"),
        (["run", "nope.py"], "does not exist"),
        (["run", "--lines", "--scaling", "1,2", __file__], "--lines shows one run"),
        (["run", "--lines", "--record", "--", "true"], "--lines does not go with --record"),
        (["run", "-n", "0", "x.py"], "at least one rank"),
        (["run", "-n", "two", "x.py"], "invalid int"),
        (["run", "-n", "99999999", "x.py"], "do not fit on this machine"),
        (["run", "--backend", "mpi", "x.py"], "unknown backend"),
        (["run", "--patience", "0", "x.py"], "patience"),
        (["run", "--json", "no/such/dir/v.json", "x.py"], "cannot write"),
        (["run", "--json", "/proc/verdict.json", "x.py"], "cannot write"),
        (["run", "--json", ".", "x.py"], "is a folder"),
        (["run", "--save", ".", "x.py"], "is a folder"),
        (["run", "--save", "v", "--json", "./v", "x.py"], "name the same file"),
        (["run", "--json", "x.py/v.json", "x.py"], "cannot write"),
        (["run", "--log-dir", "x.py/logs", "x.py"], "cannot write"),
        (["run", "--log-dir", "/proc", "x.py"], "cannot write to '/proc'"),
        (["run", "--log-dir", "/proc/logs", "x.py"], "cannot write to '/proc/logs'"),
        (["run", "--log-dir", "/proc", "--scaling", "1,2", "x.py"], "cannot write to '/proc'"),
        (["run", "--worldsize", "3", "x.py"], "unrecognized|required"),
        (["frobnicate"], "invalid choice"),
        (["run", "\x1b]0;x\x07.py"], "does not exist"),
        (["run", "--json", "no\x1b[2J/v.json", "x.py"], "cannot write"),
        (["run", "--log-dir", "x.py/\x1b[2J", "x.py"], "cannot write"),
        (["\x1b[2J"], "invalid choice"),
        (["run", "-n", "1", "--\x1b[2J=1", "x.py"], "unrecognized|required"),
    ],
)
def test_wrong_use(args, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    assert refused(*args) == 2
    said = capsys.readouterr().err
    assert any(word in said for word in says.split("|")), said
    assert "Traceback" not in said
    assert not {"\x1b", "\x07"} & set(said)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["rnu", "hang.py"], "ddpnb: error: invalid choice: 'rnu' is no command. Did you mean run?"),
        (["hang.py"], "Did you mean ddpnb run hang.py?"),
        (["sh", "-c", "x"], "Did you mean ddpnb run -- sh ...?"),
        (["run", "--patence", "3", "hang.py"], "ddpnb run: error: unrecognized arguments: --patence. Did you mean --patience?"),
        (["run", "--end", "hang.py"], "Did you mean --end-after-patience?"),
        (["bisect", "--wokers=3", "hang.py"], "usage: ddpnb bisect"),
        (["attach", "--stack"], "Did you mean --stacks?"),
        (["run", "hnag.py"], "Did you mean hang.py?"),
        (["bisect", "hnag.py"], "Did you mean hang.py?"),
        (["scan", "hnag.py"], "Did you mean hang.py?"),
        (["diagnose", "hang.dpnb"], "Did you mean hang.ddpnb?"),
        (["export", "hang.dpnb", "-o", "x.html"], "Did you mean hang.ddpnb?"),
        (["reenact", "hang.dpnb"], "Did you mean hang.ddpnb?"),
        (["explain", "--file", "trian.log"], "Did you mean train.log?"),
        (["explain", "dpp301"], "Did you mean DDP301 collective-missing"),
        (["explain", "DDP3011"], "DDP301 collective-missing"),
        (["pitfalls", "run", "unused-haed"], "Did you mean unused-head"),
    ],
)  # fmt: skip
def test_what_was_meant_is_named(args, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("hang.py", "hang.ddpnb", "train.log"):
        (tmp_path / name).touch()
    assert refused(*args) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_wrong_use_as_it_is_typed(tmp_path):
    done = ddpnb("run", "nope\x1b.py", cwd=tmp_path)
    assert (done.returncode, "does not exist" in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr and "\x1b" not in done.stderr


def test_help_names_every_exit_status(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for status in ("0 success", "1 ddpnb itself failed", "2 usage error", "3 hang", "4 completed", "128+n"):
        assert status in said


def test_backend_from_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    monkeypatch.setenv("DDP_BACKEND", "smoke")
    assert refused("run", "x.py") == 2
    assert "smoke" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU: nothing to fall back from")
def test_nccl_without_a_gpu_falls_back_and_says_so(cli):
    done = cli("run", "-n", 2, "--fork", "--backend", "nccl", VICTIMS / "healthy.py", "other_shapes_same_size")
    assert done.returncode == 0
    assert "falling back to gloo" in done.stderr


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU: nothing to fall back from")
def test_a_script_that_asks_for_nccl_runs_on_gloo_and_is_told_so(tmp_path, cli):
    script = tmp_path / "s.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group('nccl')\ndist.barrier()\n")
    done = cli("run", "-n", 2, "--fork", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script asks for nccl; it runs on gloo") == 1


@pytest.mark.parametrize(
    ("number", "status", "after"),
    [
        pytest.param(signal.SIGTERM, 143, 1.5, id="starting"),
        pytest.param(signal.SIGINT, 130, 1.5, id="starting-INT", marks=pytest.mark.full),
        pytest.param(signal.SIGINT, 130, 0.3, id="early", marks=pytest.mark.full),
    ],
)
def test_interrupted(number, status, after, tmp_path):
    """Before ranks run: the right status, no traceback, nothing left running. Of ranks that run: test_signals.py."""
    (tmp_path / "s.py").write_text("import time\ntime.sleep(600)\n")
    process = begin("run", "-n", "2", "s.py", cwd=tmp_path)
    time.sleep(after)
    children = family(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    if after > 1:
        # Killed by it is the same to a shell: so Python ends when the interrupt fell into an import written in C.
        assert process.returncode in (status, -number)
        assert "Traceback" not in said
    assert_all_ended(process, children)


def wait_until_begun(folder, count):
    """Wait until the scripts of so many ranks have begun."""
    deadline = time.monotonic() + 240
    while len(list(folder.glob("begun*"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize(("command", "number", "status"), [
    (["pitfalls", "run", "uneven-shards"], signal.SIGHUP, 129),
    (["doctor", "-n", "2"], signal.SIGTERM, 143),
], ids=["pitfalls", "doctor"])  # fmt: skip
def test_other_commands_end_their_ranks_too(command, number, status):
    process = begin(*command)
    children = wait_for_ranks(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in said) == (status, False)
    assert_all_ended(process, children)


def wait_for_ranks(process, count=2):
    """Wait until its ranks have been started."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        children = family(process)
        if len(children) > count:
            return children
        time.sleep(0.02)
    raise AssertionError("no ranks were started")


def test_the_verdict_of_an_interrupted_run(tmp_path):
    script = tmp_path / "s.py"
    script.write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n")
    process = begin("run", "-n", "1", "--patience", "300", "--json", "v.json", "--save", "r", script, cwd=tmp_path)
    wait_until_begun(tmp_path, 1)
    children = family(process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=240)
    assert process.returncode in (130, -signal.SIGINT)
    verdict = json.loads((tmp_path / "v.json").read_text())
    assert (verdict["outcome"], verdict["settled"], verdict["findings"]) == ("interrupted", False, [])
    assert said.splitlines()[-1] == "ddpnb: interrupted; no ranks are left running" and said.count("interrupted") == 1
    assert load(tmp_path / "r").ranks[0].main_stack.innermost_user.line == 3
    assert_all_ended(process, children)


def test_the_terminal_is_closed(tmp_path):
    """What was found is in the file, and the status says why it ended, although nothing can be shown any more."""
    script = tmp_path / "s.py"
    script.write_text(
        "import pathlib, time\npathlib.Path('begun').touch()\nfor _ in range(6000): print('x', flush=True); time.sleep(0.1)\n"
    )
    master, slave = os.openpty()

    def on_terminal():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    command = [*DDPNB, "run", "-n", "1", "--patience", "300", "--json", "v.json", "s.py"]
    with subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=tmp_path,
        preexec_fn=on_terminal,  # noqa: PLW1509
    ) as process:
        os.close(slave)
        deadline = time.monotonic() + 240
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            if select.select([master], [], [], 0.05)[0]:
                os.read(master, 1 << 16)
        children = family(process)
        os.close(master)
        try:
            assert process.wait(30) == 129
        finally:
            process.kill()
    assert json.loads((tmp_path / "v.json").read_text())["outcome"] == "interrupted"
    assert_all_ended(process, children)


class _NoWorld:
    """A world, or a job, of which nothing more is known."""

    _own = _groups = _releasing = None

    def __init__(self, *given, **more):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    @property
    def run(self):
        raise WorldError("monitoring of run 1 failed: the controller died.")

    def _examine(self, timeout):
        return self.run


def _not_launched(*given, **more):
    raise LaunchError("no room")


@pytest.mark.parametrize("launch", [_NoWorld, _not_launched], ids=["run", "launch"])
@pytest.mark.parametrize("command", [["run", "x.py"], ["doctor"], ["scan", "--run", "1", "x.py"]], ids=lambda c: c[0])
def test_an_earlier_verdict_does_not_pass_for_that_of_a_run_that_gave_none(command, launch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    (tmp_path / "v.json").write_text('{"outcome": "ok"}')
    monkeypatch.setattr("ddpnb.world.launching.launch", launch)
    monkeypatch.setattr("ddpnb.world.plain_run.PlainRun", launch)
    assert main([command[0], "--json", "v.json", *command[1:]]) == 1
    assert not (tmp_path / "v.json").exists()


@pytest.mark.parametrize("wrong", [["--patience", "0"], ["-n", "0"], ["--backend", "mpi"]], ids=lambda c: c[0])
def test_wrong_use_leaves_an_earlier_verdict(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("")
    (tmp_path / "v.json").write_text("before")
    assert main(["run", "--json", "v.json", *wrong, "x.py"]) == 2
    assert (tmp_path / "v.json").read_text() == "before"


def test_a_verdict_that_cannot_be_written(capsys):
    """A full disk: it is said, without a traceback, and the status is not that of success."""
    assert save(Diagnosis(), "/dev/full") == 1
    assert save(Diagnosis(outcome="hang"), "/dev/full", 3) == 3
    assert "cannot write to '/dev/full': No space left on device" in capsys.readouterr().err


def test_reader_that_went_away():
    """``ddpnb run ... | head -1`` ends well."""
    command = (
        f"{sys.executable} -m ddpnb run -n 1 {VICTIMS / 'alone.py'} 0.5 | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_nothing_stays_in_shared_memory():
    """Of a hang in interpreters of their own; above, ranks are forked."""
    process = begin("run", "-n", "2", VICTIMS / "missing.py", "early_return")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 3 and "DDP301" in said and "Traceback" not in said
    assert left_by(process) == []


@pytest.mark.full
def test_what_is_left_would_be_seen():
    """Where the tests above look is where worlds are."""
    process = begin("run", "-n", "1", VICTIMS / "alone.py", "600")
    try:
        wait_for_ranks(process, 1)
        assert len(left_by(process)) == 2
    finally:
        process.terminate()
        process.communicate(timeout=240)
    assert left_by(process) == []


WAITS = """
import subprocess, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(4)"])
dist.barrier()
print("done")
"""


@pytest.mark.world
def test_what_is_not_proven_ends_nothing(tmp_path, cli):
    """Rank 1 waits for a program for longer than patience, and goes on."""
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    done = cli("run", "-n", 2, "--fork", "--patience", 1, "--json", tmp_path / "v.json", script)
    assert (done.returncode, done.stdout.count("done")) == (0, 2), done.stderr
    warned, withdrawn, ended = (line for line in done.stderr.splitlines() if line.startswith("ddpnb:"))
    assert "warning: rank 1 has waited" in warned and "in subprocess.run (a child process)" in warned
    assert ended.startswith("ddpnb: ok: 2 ranks, ")
    assert warned.endswith("rank 0 waits for it; not proven.") and "rank 1 continued after" in withdrawn
    verdict = json.loads((tmp_path / "v.json").read_text())
    (finding,) = verdict["findings"]
    assert (verdict["outcome"], finding["code"], finding["severity"]) == ("ok", "DDP313", "warning")
    assert re.fullmatch(r"Rank 1 continued after \d+ s: the warning is withdrawn\.", finding["summary"])
    assert finding["evidence"][0].startswith("It was: Rank 1 is blocked") and not finding["remedy"]
    assert finding["evidence"][-1].startswith("Withdrawn: rank 1 continued after")


@pytest.mark.full
@pytest.mark.world
def test_what_is_not_proven_ends_the_job_where_that_is_asked_for(tmp_path, cli):
    script = tmp_path / "waits.py"
    script.write_text(WAITS.replace("sleep(4)", "sleep(600)"))
    done = cli("run", "-n", 2, "--fork", "--patience", 1, "--end-after-patience", script)
    assert (done.returncode, "DDP313" in done.stderr) == (3, True), done.stderr
