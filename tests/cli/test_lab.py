"""``ddpnb lab``: JupyterLab with the tour, on a machine with and without a display."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from ddpnb.cli import lab, main
from ddpnb.cli.lab_address import address, said
from tests import install
from tests.cli.commands import ddpnb

ROOT = Path(__file__).parents[2]
URL = "http://localhost:8889/lab/tree/tour.ipynb?token=abc"


def test_the_root_is_the_project_or_the_users_folder(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "notebooks", elsewhere):
        folder.mkdir(parents=True)
    (project / "notebooks" / "tour.ipynb").touch()
    tour = str(project / "notebooks" / "tour.ipynb")
    assert lab.place(project, project, ["--no-browser"]) == (project, tour)
    assert lab.place(project / "notebooks", project, []) == (project, tour)
    assert lab.place(elsewhere, project, []) == (elsewhere, None)  # which is said
    assert lab.place(elsewhere, elsewhere / "site-packages", []) == (elsewhere, None)
    (elsewhere / "tour.ipynb").touch()
    assert lab.place(elsewhere, project, []) == (elsewhere, str(elsewhere / "tour.ipynb"))
    own = elsewhere / "own.ipynb"
    own.touch()
    assert lab.place(elsewhere, project, ["--port", "9999", str(own)]) == (elsewhere, "")


def test_what_was_typed_is_passed_on_and_wins():
    made = lab.options(["--port", "9999"], Path("/here"), "/here/tour.ipynb", {"DISPLAY": ":0"}, root=True)
    assert made[0] == "/here/tour.ipynb" and made[-2:] == ["--port", "9999"]
    assert "--allow-root" in made and "--ServerApp.root_dir=/here" in made and "--no-browser" not in made
    made = lab.options(["--notebook-dir=/there", "--allow-root"], Path("/here"), None, {}, root=True)
    assert not any("/here" in one for one in made) and made.count("--allow-root") == 1 and "--no-browser" in made
    assert "--no-browser" not in lab.options(["--browser=firefox"], Path("/here"), None, {}, root=False)
    assert "--ServerApp.log_level=ERROR" in made
    assert not any("log_level=ERROR" in one for one in lab.options(["--debug"], Path("/here"), None, {}, root=False))
    assert "--no-browser" not in lab.options([], Path("/here"), None, {"BROWSER": "firefox"}, root=False)


def test_where_a_browser_can_open():
    assert lab.has_display({"DISPLAY": ":0"}, "linux") and lab.has_display({}, "darwin")
    assert not lab.has_display({}, "linux") and not lab.has_display({"SSH_CONNECTION": "a 1 b 2"}, "darwin")


def test_the_address_is_that_of_the_notebook_itself():
    assert address("http://localhost:8889/", "a b/tour.ipynb", "abc") == (
        "http://localhost:8889/lab/tree/a%20b/tour.ipynb?token=abc"
    )
    assert address("http://localhost:8889/", "", "") == "http://localhost:8889/lab"


def test_without_a_display_it_is_said_how_to_come_there():
    remote = {"SSH_CONNECTION": "10.0.0.1 5555 10.0.0.2 22"}
    lines = said(URL, "tour.ipynb", "localhost", 8889, remote, "/env/bin", on_path=False)
    assert lines[0] == f"The tour is at  {URL}"
    assert "    ssh -L 8889:localhost:8889 " in lines[2] and lines[2].endswith("@10.0.0.2")
    assert lines[-1] == "    /env/bin/ddpnb"
    assert len(said(URL, "tour.ipynb", "localhost", 8889, {"DISPLAY": ":0"}, "/env/bin", on_path=True)) == 1
    assert not any("ssh" in line for line in said(URL, "", "10.0.0.2", 8889, {}, "/env/bin", on_path=True))


def test_the_way_to_ddpnb_is_that_of_an_environment(tmp_path):
    (tmp_path / "activate").touch()
    assert said(URL, "", "localhost", 8889, {"DISPLAY": ":0"}, str(tmp_path), on_path=False)[-1] == (
        f"    source {tmp_path}/activate"
    )


def test_without_jupyterlab_it_is_said_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(lab, "find_spec", lambda _: None)
    assert main(["lab", "--port", "9999"]) == 2
    assert "-m pip install jupyterlab" in capsys.readouterr().err


def test_a_folder_of_jupyter_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    ended = ddpnb("lab", cwd=tmp_path, env={**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path / "file" / "run")})
    assert ended.returncode == 1 and "JUPYTER_RUNTIME_DIR" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.full
def test_questions_to_jupyterlab_are_its_own():
    assert ddpnb("lab", "--version").stdout.strip() == pytest.importorskip("jupyterlab").__version__
    assert "passed on to jupyter" in ddpnb("lab", "--help").stdout


@pytest.mark.full
def test_a_server_with_the_tour_in_a_terminal_without_a_display(tmp_path):
    """Its port is busy, so that it takes another one, which is in all that is printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment |= {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    master, slave = pty.openpty()
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "ddpnb", "lab", "--port", str(taken)],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        os.close(slave)
        try:
            told = _until(master, r"(?s)ssh -L (\d+):localhost:\1 \S+@\S+.*Its log is \S+\.log", 100)
            port, path = re.search(r"The tour is at  http://localhost:(\d+)(/lab/tree/\S+)", told).groups()
            assert (
                int(port) != taken and f"ssh -L {port}:" in told and path.startswith("/lab/tree/notebooks/tour.ipynb?")
            )
            before = told.partition("The tour is at")[0].replace("ddpnb: JupyterLab starts ...", "")
            assert not before.strip(), before  # nothing of the server's log
            with urllib.request.urlopen(f"http://localhost:{port}{path}", timeout=20) as page:
                shown = page.read()
            assert b"JupyterLab" in shown and b"apputils-extension:announcements" in shown  # which is off
            token = path.partition("token=")[2]
            listed = f"http://localhost:{port}/api/contents/Makefile?content=0&token={token}"
            with urllib.request.urlopen(listed, timeout=20) as answer:  # the root is the project
                assert answer.status == 200
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0  # as that of jupyter lab
            assert "is running at" in Path(re.search(r"Its log is (\S+\.log)", told)[1]).read_text()
        finally:
            server.kill()
            server.wait()
            os.close(master)


def _until(terminal: int, pattern: str, seconds: float) -> str:
    """What a terminal shows until the pattern is in it."""
    told, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline and not re.search(pattern, told):
        if select.select([terminal], [], [], 0.2)[0]:
            told += os.read(terminal, 65536).decode(errors="replace")
    assert re.search(pattern, told), told
    return told


# -- make lab

PIP = """
import sys, time
print("Obtaining file:///project")
print("Collecting torch>=2.9")
print("  Downloading torch-2.13.0-cp313-cp313-manylinux_2_28_x86_64.whl (200.1 MB)")
print("Collecting six")
for _ in range(10):  # lines of which none is said
    print("  Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)", flush=True)
    time.sleep(0.05)
print("Installing collected packages: torch, six")
if sys.argv[1] == "0":
    print("Successfully installed six-1.17.0 torch-2.13.0")
print("ERROR: no space left", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def project(folder, needed, extra="pytest"):
    path = folder / "pyproject.toml"
    path.write_text(f"""[project]
name = "pytest"
dependencies = ["{needed}"]
optional-dependencies.test = ["{extra}"]
""")
    return path


@pytest.mark.parametrize(
    ("needed", "extra", "status"),
    [
        ("packaging", "pytest>=8", 0),
        ("packaging", "none; python_version < '3'", 0),
        ("packaging<1", "pytest", 3),
        ("packaging", "no-such-package", 3),
    ],
)
def test_where_pip_fails_what_is_there_may_be_enough(tmp_path, needed, extra, status, monkeypatch, capfd):
    monkeypatch.setattr(install, "PROJECT", project(tmp_path, needed, extra))
    assert install.main([sys.executable, "-c", "import sys; sys.exit(3)", ".[test]"]) == status
    assert ("going on with them" in capfd.readouterr().out) is (status == 0)


@pytest.mark.parametrize("status", [0, 3])
def test_what_pip_does_is_said_in_a_few_lines(tmp_path, status, monkeypatch, capfd):
    (tmp_path / "pip.py").write_text(PIP)
    monkeypatch.setattr(install, "STILL_S", 0.2)
    monkeypatch.setattr(install, "PROJECT", project(tmp_path, "no-such-package"))
    (packages := tmp_path / "site-packages").mkdir()
    (packages / "module.py").write_text("print(b'' is 1)")
    (packages / "template.py").write_text("{% if compiled %}")
    monkeypatch.setattr(install.sysconfig, "get_path", {"purelib": str(packages)}.get)
    assert install.main([sys.executable, str(tmp_path / "pip.py"), str(status)]) == status
    printed = capfd.readouterr()
    steps = [line.partition(" s  ")[2] for line in printed.out.splitlines()]
    once = [step for step in steps if not step.startswith("still ")]
    assert [step for step in once if step] == [
        "resolving and downloading packages",
        "downloading torch-2.13.0 (200.1 MB)",
        "installing 2 packages",
        *([] if status else ["installed", "compiling what was installed"]),
    ]
    assert bool(list(packages.rglob("module.*.pyc"))) is not bool(status)
    assert "Warning" not in printed.err
    assert "still resolving and downloading packages (2 so far)" in steps
    assert ("no space left" in printed.err) is bool(status)  # warnings of a pip that succeeded are its own affair
