"""What Python runs first in each process of a job: it must be cheap, and harmless."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import ddpnb
from ddpnb.ranks.jobs.injection import SITE, injected
from ddpnb.recording import protocol, status_file
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.startup import NewGroup

_TELL = "import sys, json; print(json.dumps([sys.path, sorted(m for m in sys.modules if m.startswith('ddpnb'))]))"


def python(folder, *args, environment=None, **more):
    given = injected({**os.environ, **(environment or {})}, str(folder), "raise")
    return subprocess.run(
        [sys.executable, *args], env=given, capture_output=True, text=True, timeout=240, check=False, **more
    )


def test_a_process_that_is_no_rank_loads_nothing_of_ddpnb_and_has_its_own_path(tmp_path):
    plain = subprocess.run([sys.executable, "-c", _TELL], capture_output=True, text=True, timeout=240, check=True)
    done = python(tmp_path, "-c", _TELL)
    path, modules = json.loads(done.stdout)
    assert (path, modules, done.stderr) == (json.loads(plain.stdout)[0], [], "")
    assert os.listdir(tmp_path) == []


def test_the_path_of_the_user_is_kept(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "helper.py").write_text("value = 7\n")
    environment = {"PYTHONPATH": str(tmp_path / "mine")}
    done = python(tmp_path, "-c", "import helper; print(helper.value)", environment=environment)
    assert done.stdout == "7\n"
    assert injected(environment, str(tmp_path), "raise")["PYTHONPATH"] == f"{SITE}{os.pathsep}{tmp_path / 'mine'}"


def test_a_job_inside_a_job_has_the_folder_once(tmp_path):
    once = injected({"PYTHONPATH": "/mine"}, str(tmp_path), "raise")
    assert injected(once, str(tmp_path), "raise")["PYTHONPATH"] == f"{SITE}{os.pathsep}/mine"


def test_the_users_sitecustomize_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.custom = __name__\n")
    done = python(
        tmp_path, "-c", "import sys, sitecustomize; print(sys.custom, sitecustomize.__file__)",
        environment={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout == f"sitecustomize {tmp_path / 'sitecustomize.py'}\n"


def test_a_sitecustomize_that_fails_is_reported_as_python_does(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    done = python(tmp_path, "-c", "print('runs')", environment={"PYTHONPATH": str(tmp_path)})
    assert done.stdout == "runs\n"
    assert "Error in sitecustomize" in done.stderr
    assert "ValueError: mine" in done.stderr


@pytest.mark.full
def test_torch_is_imported_as_without_ddpnb(tmp_path):
    code = "import torch; print(type(torch.__loader__).__name__, torch.__spec__.name, vars(torch.__loader__).keys())"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert python(tmp_path, "-c", code).stdout == plain.stdout


@pytest.mark.parametrize("before", ["", pytest.param("import torch; ", marks=pytest.mark.full)])
def test_a_script_imports_the_ddpnb_that_records_it(before, tmp_path):
    """Its environment may have another version, or none. That the job's folder is gone is no reason to fail."""
    other = tmp_path / "other" / "ddpnb"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    code = f"{before}import ddpnb, sys; ddpnb.checkpoint('ready'); print(ddpnb.__file__, 'torch' in sys.modules)"
    done = python(tmp_path / "gone", "-c", code, environment={"PYTHONPATH": str(other.parent)})
    line, said = done.stdout.splitlines()
    assert done.stderr == ""
    assert line.endswith("CHECKPOINT 1: ready") and said == f"{ddpnb.__file__} {bool(before)}"


def test_a_rank_that_replaces_itself_is_still_that_rank_and_its_child_is_none(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "from ddpnb.recorder.inject import activation\n"
        "if len(sys.argv) == 1:\n"
        "    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n"
        "print(repr(activation._folder), flush=True)\n"
        "if sys.argv[1] == 'again':\n"
        "    subprocess.run([sys.executable, __file__, 'child'])\n"
    )
    environment = {protocol.START: str(tmp_path), protocol.PARENT: str(os.getpid()), "RANK": "0"}
    done = python(tmp_path, str(script), environment=environment)
    assert (done.stdout.splitlines(), done.stderr) == ([repr(str(tmp_path)), "''"], "")


def test_the_child_of_a_rank_is_no_rank(tmp_path):
    """A compiler or a data worker has the rank of its parent in its environment."""
    code = "import torch, sys; print('ddpnb.recorder.plain' in sys.modules)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    done = python(tmp_path, "-c", parent, environment={"RANK": "0", "WORLD_SIZE": "1"})
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    "form",
    ["by name", *(pytest.param(one, marks=pytest.mark.full) for one in ("init_method", "arguments", "device mesh"))],
)
def test_a_process_becomes_a_rank_when_it_makes_a_group(form, tmp_path):
    """Neither its name nor its environment tells before that it is one."""
    script = {
        "init_method": f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)",
        "arguments": f"dist.init_process_group('gloo', 'file://{tmp_path}/store', None, 1, 0)",
        "by name": "init_process_group('gloo'); make([0])",
        "device mesh": "dist.init_device_mesh('cpu', (1,))",
    }[form]
    late = (
        {}
        if form in ("init_method", "arguments")
        else {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    )
    code = f"""
import os, torch, torch.distributed as dist
from torch.distributed import init_process_group, new_group as make
os.environ.update({late!r})
{script}
dist.all_reduce(torch.ones(2))
"""
    job = tmp_path / "job"
    job.mkdir()
    done = python(job, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    (start,) = [path for path in job.iterdir() if path.is_dir()]
    assert json.loads((start / "rank0.json").read_text())["size"] == 1
    assert json.loads((start / "rank0.end.json").read_text())["how"] == "finished"
    assert status_file.read(str(start), 0).status == 0
    made = [event for event in BoxReader((start / "rank0.box").read_bytes()).events() if isinstance(event, NewGroup)]
    assert [event.ranks for event in made] == ([(0,)] if form == "by name" else [])


@pytest.mark.full
def test_an_invalid_rank_fails_as_without_ddpnb(tmp_path):
    code = "import torch.distributed as dist; dist.init_process_group('gloo', init_method='env://', rank='x', world_size=1)"
    done = python(tmp_path, "-c", code)
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, plain.returncode) == (1, 1)
    assert done.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]
    assert "ddpnb: this process is not recorded" in done.stderr
