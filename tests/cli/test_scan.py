"""``ddpnb scan`` as a stranger types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ddpnb.cli import main
from tests.conftest import VICTIMS

PROJECT = {
    "pyproject.toml": "",
    "scripts/train.py": """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from lib.checkpoint import Keeper
from lib import comm

try:
    import installed
except ImportError:
    installed = None


def main():
    comm.start()
    model = DDP(torch.nn.Linear(2, 2))
    keeper = Keeper()
    for step in range(3):
        model(torch.randn(4, 2)).sum().backward()
        if comm.is_main() and step == 1:
            keeper.save(model)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
""",
    "lib/__init__.py": "",
    "lib/comm.py": """\
import os
import torch.distributed as dist


def start():
    dist.init_process_group(os.environ.get("DDP_BACKEND", "gloo"))


def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0


def settle():
    dist.barrier()
""",
    "lib/checkpoint.py": """\
from . import comm


class Keeper:
    def save(self, model):
        comm.settle()
""",
    "lib/unused.py": "import torch.distributed as dist\ndist.barrier()\n",
    ".venv/pyvenv.cfg": "",
    ".venv/lib/site-packages/installed.py": "import torch.distributed as dist\ndist.barrier()\n",
    "scripts/site-packages/installed.py": "import torch.distributed as dist\ndist.barrier()\n",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "90")
    return tmp_path


def scan(capsys, *arguments):
    status = main(["scan", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_project_of_several_modules(project, capsys):
    status, out, err = scan(capsys, "scripts/train.py")
    assert (status, err) == (0, "")
    assert out.startswith("ddpnb scan: 5 collective calls in 4 files\n")
    assert "scripts/train.py:20  only if comm.is_main() and step == 1\n" in out
    assert "  - line 22 barrier\n" in out
    assert "`comm.is_main()` is rank-dependent, judging by its name" in out
    assert out.endswith("4 more: no condition on the rank around the call (--all lists them).\n")
    assert "\x1b" not in out


def test_all_of_them(project, capsys):
    _, out, _ = scan(capsys, "--all", "scripts/train.py")
    assert "lib/comm.py\n  line 6   init_process_group  in start()\n  line 14  barrier  " in out
    assert "  line 16  DistributedDataParallel  in main()\n" in out
    assert "unused" not in out and "site-packages" not in out


def test_several_scripts_and_json(project, capsys):
    status, out, _ = scan(capsys, "--json", "scan.json", "scripts/train.py", "lib/unused.py", "scripts/train.py")
    assert status == 0
    report = json.loads((project / "scan.json").read_text())
    names = [os.path.relpath(file, project) for file in report["files"]]
    assert names == ["scripts/train.py", "lib/unused.py", "lib/__init__.py", "lib/checkpoint.py", "lib/comm.py"]
    assert {one["doubt"] for one in report["collectives"]} == {"strong", "none"}
    assert "5 files" in out


def test_a_file_with_a_syntax_error_is_told_and_the_others_are_scanned(project, capsys):
    (project / "lib/comm.py").write_text("def f(:\n")
    status, out, _ = scan(capsys, "scripts/train.py", "lib/unused.py")
    assert status == 0
    assert "lib/comm.py:1: not scanned: invalid syntax" in out
    assert "collective calls" in out


def test_odd_encodings_are_read_as_python_reads_them(project, capsys):
    (project / "a.py").write_bytes(
        b"# -*- coding: latin-1 -*-\nimport torch.distributed as dist\ns = '\xe9'\ndist.barrier()\n"
    )
    (project / "b.py").write_bytes(
        b"\xef\xbb\xbfimport torch.distributed as dist\r\ns = '\xc3\xa9'\r\ndist.barrier()\r\n"
    )
    (project / "c.py").write_bytes(b"import torch.distributed as dist\ns = '\xff'\ndist.barrier()\n")
    _, out, _ = scan(capsys, "--all", "a.py", "b.py", "c.py")
    assert out.count("barrier\n") == 3
    assert "line 4  barrier" in out and out.count("line 3  barrier") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.py"], "'nosuch.py' does not exist"),
        (["scripts"], "'scripts' is a folder"),
        (["scripts/train.py", "nosuch.py"], "'nosuch.py' does not exist"),
        (["--run", "0", "scripts/train.py"], "--run needs a number of ranks"),
        (["--json", "no/such/folder/x.json", "scripts/train.py"], "cannot write"),
        (["--json", "scripts", "scripts/train.py"], "cannot write"),
        (["large.py"], "larger than"),
    ],
)
def test_wrong_use(project, capsys, arguments, message):
    with open("large.py", "w") as file:
        file.truncate(3 << 20)
    status, out, err = scan(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_no_script(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["scan"])
    assert ended.value.code == 2


def test_nothing_but_the_standard_library_is_needed_to_read(project):
    """A scan must not load torch: it is asked for before anything runs."""
    code = (
        "import sys; from ddpnb.cli import main; main(['scan', 'scripts/train.py']); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.world
def test_counts_of_a_run(project, cli, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(project))
    done = cli("scan", "--run", "2", "--json", "scan.json", "scripts/train.py", "--", "--x", "1", fork=True)
    assert done.returncode == 0, done.stderr
    assert "Counted in a run on 2 ranks (hang):" in done.stdout
    assert "! line 14  barrier  1 by rank 0, 0 by rank 1" in done.stdout
    assert "ddpnb run -n 2 scripts/train.py --x 1" in done.stdout
    ran = json.loads((project / "scan.json").read_text())["run"]
    assert (ran["outcome"], ran["world_size"], ran["whole"]) == ("hang", 2, True)
    barrier = next(row for row in ran["counts"] if row["op"] == "barrier")
    assert (barrier["counts"], barrier["unequal"]) == ({"0": 1, "1": 0}, True)


@pytest.mark.full
@pytest.mark.world
def test_counts_of_a_healthy_run(tmp_path, cli):
    done = cli("scan", "--run", "4", VICTIMS / "healthy.py", "--", "other_lines", cwd=tmp_path, fork=True)
    assert done.returncode == 0, done.stderr
    counted = done.stdout.partition("Counted in a run on 4 ranks (ok):")[2]
    assert "1 by rank 0, 0 by ranks 1, 2 and 3" in counted
    assert "!" not in counted
