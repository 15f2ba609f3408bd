"""The processes of a world in a working directory whose files have the names of modules that they need."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

import ddpnb
from ddpnb.errors import LaunchError
from ddpnb.ranks.engines import engines
from ddpnb.ranks.engines.client import Client

pytestmark = pytest.mark.world

PLANTED = ("queue", "random", "json", "psutil", "zmq", "torch", "ipyparallel", "traitlets", "decorator")

SCRIPT = """
import multiprocessing, sys
import mine

if __name__ == "__main__":
    print("flag", sys.flags.safe_path, "here", [folder for folder in sys.path if folder in ("", sys.argv[1])])
    for method in ("fork", "spawn", "forkserver"):
        child = multiprocessing.get_context(method).Process(target=mine.say, args=(method,))
        child.start()
        child.join()
        print(method, child.exitcode)
"""


@pytest.mark.full
def test_files_in_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    """A script finds the modules beside it, in processes that it starts too; a cell those of the working directory."""
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('planted: {name}')\n")
    (tmp_path / "of_the_notebook.py").write_text("value = 5\n")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "mine.py").write_text("def say(method):\n    print('in', method, flush=True)\n")
    (scripts / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    time_outs = []

    def client(*args, **more):
        time_outs.append(more.get("timeout", 10))
        return Client(*args, **more)

    monkeypatch.setattr(engines, "Client", client)
    with ddpnb.launch(1, backend="gloo", quiet=True, timeout=90) as world:
        assert len(time_outs) == 1 and time_outs[0] > 15  # what is left of the launch's own, not ten seconds
        controller = psutil.Process(world._ranks.processes._cluster.controller.pid)
        assert controller.children() == []  # its heart monitor cannot die alone
        cell = world.execute("import os, of_the_notebook\nof_the_notebook.value, os.getcwd()", stream=None).wait(60)
        shown = " ".join(cell.log(0).split())  # a long path makes it two lines
        assert (cell.outcome, shown) == ("ok", str((5, str(tmp_path))))
        monkeypatch.chdir(scripts)  # what multiprocessing starts has the working directory first, as it has it anywhere
        run = world.run("train.py", str(tmp_path), stream=None).wait(60)
        lines = run.log(0).splitlines()
        assert run.outcome == "ok", run.log(0)
        assert lines[0] == "flag False here []"
        assert {"in fork", "in spawn", "in forkserver", "fork 0", "spawn 0", "forkserver 0"} == set(lines[1:])


@pytest.mark.full
def test_an_empty_entry_of_the_python_path_is_the_scripts_alone(tmp_path, monkeypatch):
    """``PYTHONPATH=$PYTHONPATH:/x`` where it was unset: Python takes the working directory for it."""
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('planted: {name}')\n")
    (tmp_path / "of_the_user.py").write_text("value = 5\n")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "train.py").write_text(
        "import sys, of_the_user\nprint(of_the_user.value, sys.path.index(sys.argv[1]), sys.path[2])\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}/other")
    with ddpnb.launch(1, backend="gloo", quiet=True, timeout=90) as world:
        run = world.run("scripts/train.py", str(tmp_path), stream=None).wait(60)
        assert (run.outcome, run.log(0).strip()) == ("ok", f"5 1 {tmp_path}/other"), run.log(0)


@pytest.mark.full
@pytest.mark.parametrize("who", ["controller", "engine"])
def test_a_launch_error_shows_the_log_of_who_died_at_an_import(tmp_path, monkeypatch, who):
    name = {"controller": "ipyparallel.controller", "engine": "ipyparallel.engine"}[who]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif {who!r} in sys.argv:\n    sys.modules[{name!r}] = None\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LaunchError, match=rf"{who}(.|\n)*Its last lines:(.|\n)*ModuleNotFoundError: .*{name}"):
        ddpnb.launch(1, backend="gloo", quiet=True)


LOADED = """
import sys
from ddpnb.ranks.engines import engine
main = engine.{load}()
print([name for name in {unwanted} if name in sys.modules])
import ipyparallel
from ipyparallel import Cluster
print(ipyparallel.Cluster is Cluster, Cluster.__module__, ipyparallel.ClusterManager.__module__, hasattr(ipyparallel, "x"))
import numpy
"""


@pytest.mark.parametrize(
    ("load", "unwanted"),
    [("load", ["ipyparallel.cluster", "debugpy"]), ("load_controller", ["ipyparallel.cluster", "numpy"])],
)
def test_what_an_engine_and_a_controller_do_not_import_is_there_for_the_user(load, unwanted):
    code = LOADED.format(load=load, unwanted=unwanted)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.splitlines() == ["[]", "True ipyparallel.cluster.cluster ipyparallel.cluster.cluster False"]
