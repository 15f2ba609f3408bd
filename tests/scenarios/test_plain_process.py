"""A script finds what a process of its own would find: its own modules, and no notebook."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest

pytestmark = pytest.mark.world

#: loaded in every engine, or so common in environments that a user's module of this name must win
NAMES = (
    "comm", "decorator", "packaging", "platformdirs", "psutil", "pygments", "tornado", "traitlets", "zmq", "dateutil",
    "six", "stack_data", "executing", "asttokens", "pure_eval", "jedi", "parso", "pexpect", "wcwidth", "nest_asyncio",
    "debugpy", "cloudpickle", "xxhash", "jupyter_client", "IPython", "code", "statistics",
)  # fmt: skip

SCRIPT = """
import importlib, json, os, sys, time
import torch, torch.distributed as dist

names = sys.argv[1].split(",")
whose = {name: getattr(importlib.import_module(name), "WHOSE", "foreign") for name in names}
from traitlets import config  # a package of the user's, with a part
import psutil
if os.environ["RANK"] == "0":
    with open("whose.json", "w") as file:
        json.dump(whose | {"traitlets.config": config.WHOSE}, file)
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2))
if dist.get_rank() != 1:
    dist.barrier()  # rank 1 never calls it: its peers answer on the control channel meanwhile
"""

FACTS = """
import builtins, json, os, sys
def facts():
    found = {
        "ps1": hasattr(sys, "ps1"),
        "interactive": sys.flags.interactive,
        "get_ipython": hasattr(builtins, "get_ipython"),
        "__IPYTHON__": hasattr(builtins, "__IPYTHON__"),
        "IPython": "IPython" in sys.modules,
        "ipykernel": "ipykernel" in sys.modules,
        "displayhook": sys.displayhook is sys.__displayhook__,
        "excepthook": sys.excepthook is sys.__excepthook__,
        "breakpointhook": sys.breakpointhook is sys.__breakpointhook__,
        "variables": sorted(set(os.environ) & {"MPLBACKEND", "FORCE_COLOR", "CLICOLOR_FORCE", "JPY_PARENT_PID",
                                               "IPP_CLUSTER_ID", "PYDEVD_USE_FRAME_EVAL"}),
        "main": sys.modules["__main__"].__dict__ is globals(),
        "orig_argv": sys.orig_argv[1:2],
    }
    import IPython
    found["shell"] = IPython.get_ipython() is not None
    return found
"""


def test_the_modules_of_the_user_win(world, tmp_path):
    """Twenty-seven names that ddpnb's own stack loads or may load; the ranks go on answering, and live on."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("WHOSE = 'user'\n")
    (tmp_path / "traitlets.py").unlink()
    (tmp_path / "traitlets").mkdir()
    (tmp_path / "traitlets" / "__init__.py").write_text("WHOSE = 'user'\n")
    (tmp_path / "traitlets" / "config.py").write_text("WHOSE = 'user'\n")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace('"whose.json"', repr(str(tmp_path / "whose.json"))))
    run = world.run(script, ",".join(NAMES), stream=None).wait(60)
    assert run.outcome == "hang", run.log(0)
    whose = json.loads((tmp_path / "whose.json").read_text())
    assert {name for name, one in whose.items() if one != "user"} == set()
    asked = world.evaluate("psutil.WHOSE", ranks=[0, 2])
    assert set(asked.values_by_rank.values()) == {"user"}
    assert all(record.stacks for rank, record in world.snapshot().ranks.items() if rank != 1)
    assert not world.release().left

    def afterwards():
        import comm
        import psutil
        import traitlets.config

        return psutil.Process().pid, comm.__file__, traitlets.config.__file__, "WHOSE" in vars(psutil)

    later = world.run(afterwards, stream=None).wait(60)
    assert later.outcome == "ok", later.log(0)
    for pid, *files, users in later.results:
        assert pid in world.pids()
        assert not users
        assert not any(str(tmp_path) in file for file in files)


def test_the_modules_of_a_function_are_found_beside_the_notebook(world, tmp_path, monkeypatch):
    (tmp_path / "comm.py").write_text("WHOSE = 'user'\n")
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('the user has a module of this name')\n")
    import cloudpickle  # noqa: F401 (the launcher has its own)

    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def whose():
        import comm

        return getattr(comm, "WHOSE", "foreign")

    run = world.run(whose, stream=None).wait(60)
    assert run.outcome == "ok", run.log(0)
    assert run.results == ["user"] * 4


def test_a_script_sees_no_notebook(world, tmp_path):
    script = tmp_path / "facts.py"
    script.write_text(
        FACTS + "\nwith open(sys.argv[1] + os.environ['RANK'], 'w') as file:\n    json.dump(facts(), file)\n"
    )
    run = world.run(script, tmp_path / "facts", stream=None).wait(60)
    assert run.outcome == "ok", run.log(0)
    for rank in range(4):
        assert json.loads((tmp_path / f"facts{rank}").read_text()) == {
            "ps1": False, "interactive": 0, "get_ipython": False, "__IPYTHON__": False, "IPython": False,
            "ipykernel": False, "displayhook": True, "excepthook": True, "breakpointhook": True, "variables": [],
            "main": True, "orig_argv": [str(script)], "shell": False,
        }  # fmt: skip


def test_a_function_and_a_cell_see_no_notebook_either(world):
    def facts():
        import sys

        import IPython

        return hasattr(sys, "ps1"), IPython.get_ipython()

    assert world.run(facts, stream=None).wait(60).results == [(False, None)] * 4
    cell = """
        import os, sys, IPython
        display(hasattr(sys, "ps1"), IPython.get_ipython(), "FORCE_COLOR" in os.environ)
    """
    run = world.execute(textwrap.dedent(cell), stream=None).wait(60)
    assert run.outcome == "ok", run.log(0)
    assert run.log(0).split() == ["False", "None", "False"]


def test_a_script_behind_a_link_finds_the_modules_beside_itself(world, tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("import beside\n")
    (tmp_path / "project" / "beside.py").write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "project" / "train.py")
    run = world.run(tmp_path / "link.py", stream=None).wait(60)
    assert run.outcome == "ok", run.log(0)
