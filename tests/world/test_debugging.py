"""debugpy in ranks: the launch configuration, and two ranks by a real client of the protocol."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

import ddpnb as package
from ddpnb.errors import CannotWrite, UsageError
from ddpnb.recorder.holds import ide
from ddpnb.recorder.holds.breakpoints import Gate
from ddpnb.recorder.stacks.own_threads import leave_own_threads_alone, own_thread
from ddpnb.recording import verbs
from ddpnb.world import debugging, jsonc
from tests import stepped as stepped_script
from tests.cli.commands import assert_all_ended, begin, end_begun
from tests.cli.jobs import end, wait_for_job
from tests.dap import DapClient, clients
from tests.waiting import until

_SCRIPT = """
import os, time, torch, torch.distributed as dist

def train(rank):
    total = torch.zeros(4)
    while not os.path.exists("go"):
        time.sleep(0.02)
    for step in range(200):
        value = step * 10 + rank
        total = torch.full((4,), float(value))
        dist.all_reduce(total)
        time.sleep(0.002)
    open(f"total{rank}", "w").write(str(total.sum().item()))

dist.init_process_group("gloo")
train(dist.get_rank())
dist.destroy_process_group()
"""


def line_of(text):
    return next(n for n, line in enumerate(_SCRIPT.splitlines(), 1) if text in line)


BREAK, CALL = line_of("torch.full"), line_of("all_reduce")


# -- the configuration


def written(path, ports=None):
    return debugging._write(str(path), ports or {0: 4000, 1: 4001})


def test_one_compound_attaches_to_all_ranks(tmp_path):
    path = tmp_path / ".vscode" / "launch.json"
    assert written(path) == (str(path), "")
    made = json.loads(path.read_text())
    assert [one["connect"] for one in made["configurations"]] == [
        {"host": "127.0.0.1", "port": port} for port in (4000, 4001)
    ]
    assert made["compounds"][0]["configurations"] == [one["name"] for one in made["configurations"]]


def test_the_configurations_of_others_are_kept_and_those_of_an_earlier_job_replaced(tmp_path):
    path = tmp_path / "launch.json"
    theirs = {"name": "ddpnb: rank of mine", "type": "debugpy", "request": "launch"}
    path.write_text(json.dumps({"version": "0.2.0", "inputs": [1], "configurations": [theirs]}))
    written(path, {0: 1, 1: 2, 2: 3})
    written(path, {0: 7})
    made = json.loads(path.read_text())
    assert made["inputs"] == [1]
    assert [one["name"] for one in made["configurations"]] == ["ddpnb: rank of mine", "ddpnb: rank 0"]
    assert [one["configurations"] for one in made["compounds"]] == [["ddpnb: rank 0"]]


COMMENTED = """{
    // Use IntelliSense: "configurations": [ }
    "version": "0.2.0", /* mine */
    "configurations": [
        {
            "name": "train, // not a comment",
            "type": "debugpy", "request": "launch", // run it
        }, // the last one
    ],
    "inputs": [],
}
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_file_with_comments_keeps_them_and_all_else(tmp_path, newline):
    path = tmp_path / "launch.json"
    given = COMMENTED.replace("\n", newline)
    path.write_bytes(b"\xef\xbb\xbf" + given.encode())
    for ports in ({0: 1, 1: 2, 2: 3}, {0: 7, 1: 8}):
        assert written(path, ports) == (str(path), "")
    text = path.read_bytes().decode()
    assert [line for line in given.split(newline) if line.rstrip(",") not in text] == []
    made = jsonc.read(text)
    assert [one["name"] for one in made["configurations"]] == [
        "train, // not a comment", "ddpnb: rank 0", "ddpnb: rank 1",
    ]  # fmt: skip
    assert [one["connect"]["port"] for one in made["configurations"][1:]] == [7, 8]
    assert [one["configurations"] for one in made["compounds"]] == [["ddpnb: rank 0", "ddpnb: rank 1"]]
    assert text.count("ddpnb: all ranks") == 1 and made["inputs"] == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "{ // nothing\n}", '{"configurations":[]}', '{"configurations":[ /* none */ ],}',
        '{"compounds": [{"name": "ddpnb: all ranks"}], "configurations": [1, {"name": "ddpnb: rank 9"}, 2]}',
        '{"configurations": [{"name": "ddpnb: rank 9"} // ours\n, {"name": "x"}]}',
        '{"configurations": [// mine\n {"name": "ddpnb: rank 9"}, {"name": "x"}]}',
    ],
)  # fmt: skip
def test_whatever_the_file_was_it_has_the_ranks_once(tmp_path, text):
    path = tmp_path / "launch.json"
    path.write_text(text)
    others = [one for one in jsonc.read(text or "{}").get("configurations", []) if not debugging._is_own(one)]
    for _ in range(2):
        assert written(path) == (str(path), "")
        made = jsonc.read(path.read_text())
        assert made["configurations"][: len(others)] == others
        assert [one["name"] for one in made["configurations"][len(others) :]] == ["ddpnb: rank 0", "ddpnb: rank 1"]
        assert [one["name"] for one in made["compounds"]] == ["ddpnb: all ranks"]


# What an attach configuration of VS Code's extension "Python Debugger" may have: its package.json.
ATTACH = {
    "name", "type", "request", "connect", "listen", "host", "port", "processId", "justMyCode", "pathMappings",
    "subProcess", "redirectOutput", "showReturnValue", "django", "jinja", "logToFile", "presentation", "preLaunchTask",
    "postDebugTask", "internalConsoleOptions", "autoReload", "clientOS",
}  # fmt: skip


def test_the_configuration_is_what_vs_code_takes(tmp_path):
    path = tmp_path / "launch.json"
    written(path)
    made = json.loads(path.read_text())
    assert made["version"] == "0.2.0"
    for one in made["configurations"]:
        assert {*one} <= ATTACH and (one["type"], one["request"]) == ("debugpy", "attach")
        assert {*one["connect"]} == {"host", "port"} and isinstance(one["connect"]["port"], int)
        assert {"port", "processId", "listen"}.isdisjoint(one), "only one way to connect may be given"
        assert "pathMappings" not in one, "a rank of this host has the files of this host"
    assert {*made["compounds"][0]} == {"name", "configurations", "stopAll"}


@pytest.mark.parametrize("text", ['{ /* mine "configurations": []}', "[]", '{"configurations": 3}', "\x00", "[" * 9000])
def test_a_file_that_is_no_json_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "launch.json"
    path.write_text(text)
    beside, note = written(path)
    assert path.read_text() == text
    assert (
        beside == str(tmp_path / "launch.ddpnb.json")
        and len(json.loads(Path(beside).read_text())["configurations"]) == 2
    )
    assert "is left as it is" in note and beside in note


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path):
    (tmp_path / ".vscode").write_text("")
    with pytest.raises(CannotWrite, match="cannot write"):
        written(tmp_path / ".vscode" / "launch.json")


# -- in a rank


class Asked:
    """A control channel by hand."""

    def __init__(self):
        self.handlers = {}
        self.serve = self.handlers.__setitem__


def test_a_rank_without_debugpy_says_what_to_install(monkeypatch):
    asked = Asked()
    ide.Ide(None, Gate(None), asked.serve)
    monkeypatch.setattr(ide, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"debugpy is not installed for .*: pip install debugpy"):
        asked.handlers[verbs.Debugpy](verbs.Debugpy())


def test_no_thread_of_the_recorder_is_stopped_by_a_debugger():
    other = own_thread(time.sleep, "ddpnb test", (0.2,))
    vars(other).update(is_pydev_daemon_thread=False)
    other.start()
    leave_own_threads_alone()
    assert vars(other)["is_pydev_daemon_thread"] and vars(other)["pydev_do_not_trace"]
    other.join()
    started = re.findall(r"threading\.Thread\(", Path(ide.__file__).read_text())
    assert not started


# -- two ranks, by a real client


@pytest.fixture
def job(tmp_path):
    (tmp_path / "steps.py").write_text(_SCRIPT)
    process = begin("run", "--fork", "--patience", "2", "--json", "found.json", "-n", "2", "steps.py", cwd=tmp_path)
    try:
        found = wait_for_job(process)
        with package.attach(found, patience=2) as attached:
            yield tmp_path, process, attached
    finally:
        end(process)
        end_begun()
    assert_all_ended(process, list(found.ranks.values()))


def stepped(client, thread, line):
    """Step over one line; it stops before the next one."""
    client.ask("next", threadId=thread)
    assert client.stopped() == (thread, "step")
    assert client.stack(thread)[0]["line"] == line


@pytest.mark.full
def test_two_ranks_are_debugged_by_an_ide_and_end_as_without(job):
    """Breakpoint, stack, variables, step, continue; the IDE goes away while a rank is stopped; no alarm, the same numbers."""
    folder, process, attached = job
    script = folder / "steps.py"
    shown = attached.debugpy(file=folder / "launch.json")
    assert attached.debugpy(file=folder / "launch.json").ports == shown.ports, "it listens already"
    assert "F5" in str(shown) and (folder / "launch.json").exists()
    with clients(shown.ports) as made:
        assert [client.attach(script, BREAK) for client in made.values()] == [[True], [True]]
        (folder / "go").touch()
        threads = {}
        for rank, client in made.items():
            threads[rank], why = client.stopped()
            top = client.stack(threads[rank])[0]
            assert (why, top["name"], top["line"]) == ("breakpoint", "train", BREAK)
            assert client.variables(top)["value"] == str(rank)
        until(lambda: attached.status().held == (0, 1))
        assert attached.evaluate("value").values_by_rank == {0: 0, 1: 1}
        for rank, client in made.items():
            stepped(client, threads[rank], CALL)
        until(lambda: f":{CALL}" in attached.status()[0].doing)
        made[1].breakpoints(script)
        made[1].ask("continue", threadId=threads[1])
        until(lambda: attached.status()[1].state == "waiting")
        time.sleep(5)  # twice the patience of those who watch
        assert attached.status().held == (0,)
        assert not attached.diagnosis.findings and attached.run.outcome == "running"
    until((folder / "total1").exists)  # the connection is broken: the ranks continue
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 0, said
    assert [(folder / f"total{rank}").read_text() for rank in (0, 1)] == [str(4.0 * (1990 + 1991))] * 2
    assert json.loads((folder / "found.json").read_text())["findings"] == []


@pytest.mark.full
def test_a_training_that_an_ide_has_stopped_in_a_step_ends_with_the_same_numbers(tmp_path):
    """By the configuration as it is written: stop rank 1 in a step, see why its value differs, step three lines, continue."""
    folder, undisturbed = tmp_path / "job", stepped_script.plain(tmp_path / "plain")
    folder.mkdir()
    script, lines = folder / "stepped.py", stepped_script.SCRIPT.splitlines()
    script.write_text(stepped_script.SCRIPT)
    process = begin("run", "--fork", "-n", "2", "stepped.py", cwd=folder)
    try:
        found = wait_for_job(process)
        with package.attach(found) as attached:
            shown = attached.debugpy(file=folder / "launch.json")
            own = json.loads((folder / "launch.json").read_text())["configurations"]
            assert {one["connect"]["port"] for one in own} == {*shown.ports.values()}
            with clients(shown.ports) as made:
                made[0].attach(script, **own[0])
                assert made[1].attach(script, stepped_script.LINE, when=stepped_script.WHEN, **own[1]) == [True]
                (folder / "go").touch()
                thread, _ = made[1].stopped()
                known = made[1].variables(made[1].stack(thread)[0])
                assert (known["number"], known["scale"]) == ("7", "2.0")
                until(lambda: attached.status()[0].state == "waiting")
                assert "scale" in {row.name for row in attached.diff().found.differing}
                for line in stepped_script.THEN:
                    stepped(made[1], thread, 1 + lines.index(f"    {line}"))
                made[1].breakpoints(script)
                made[1].ask("continue", threadId=thread)
                said = process.communicate(timeout=120)[1]
    finally:
        end(process)
        end_begun()
    assert process.returncode == 0, said
    assert stepped_script.numbers(folder) == undisturbed


@pytest.mark.full
def test_a_rank_that_is_killed_while_an_ide_has_stopped_it_is_a_crash(job):
    folder, process, attached = job
    shown = attached.debugpy(1, file=folder / "launch.json")
    client = DapClient(shown.ports[1])
    client.attach(folder / "steps.py", BREAK)
    (folder / "go").touch()
    client.stopped()
    import os
    import signal

    os.kill(attached.pids()[1], signal.SIGKILL)
    process.communicate(timeout=240)
    assert process.returncode not in (0, 3)
    client.close()


@pytest.mark.full
@pytest.mark.world
def test_engines_of_a_world_are_stopped_by_an_ide_and_continue(world, tmp_path, monkeypatch):
    """Their kernels have a debugger of their own, for notebooks: an IDE attaches beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.py").write_text(_SCRIPT)
    run = world.run("steps.py", patience=2)
    shown = world.debugpy(ranks=(0, 1), file=tmp_path / "launch.json", timeout=200)
    with clients(shown.ports) as made:
        assert [client.attach(tmp_path / "steps.py", BREAK) for client in made.values()] == [[True], [True]]
        (tmp_path / "go").touch()
        for rank, client in made.items():
            thread, why = client.stopped()
            top = client.stack(thread)[0]
            assert (why, top["line"], client.variables(top)["value"]) == ("breakpoint", BREAK, str(rank))
        until(lambda: world.status().held == (0, 1))
        until(lambda: world.status()[2].state == "waiting")
        assert run.outcome == "running" and not run.diagnosis.errors
    run.wait(200)
    assert run.outcome == "ok"
    assert (tmp_path / "total0").read_text() == (tmp_path / "total3").read_text()
