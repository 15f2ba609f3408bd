"""A handful of tests in circumstances of other people's machines: users, folders, terminals, load.

They run in a copy of what git tracks. Its folder is called ``ddpnb``, as ``git clone`` calls it, and lies in one whose
name has a space and an umlaut. The packages are those of this environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import ddpnb
from tests.cli.commands import DDPNB

ROOT = Path(__file__).parents[1]
# What depends on folders, users, terminals and signals, and is cheap.
HANDFUL = [
    "tests/test_anywhere.py",
    "tests/recording/test_files.py",
    "tests/ranks/test_folder.py",
    "tests/recorder/channel/test_socket_channel.py",
    "tests/cli/test_lab.py",
    "tests/cli/test_run.py::test_hang",
    "tests/cli/test_run.py::test_wrong_use_as_it_is_typed",
    "tests/cli/test_command.py::test_a_rank_that_raises",
    "tests/cli/test_command.py::test_interrupted",
    "tests/scenarios/test_world.py::test_exceptions_come_with_the_users_frames",
]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def test_what_is_tested_is_this_project(tmp_path):
    """Also in the processes that the tests start."""
    (tmp_path / "where.py").write_text("import ddpnb, json, os\nprint(json.dumps(ddpnb.__file__))\n")
    assert Path(ddpnb.__file__).parent == ROOT / "ddpnb"
    for command in ([sys.executable, "where.py"], [*DDPNB, "run", "-n", "1", "where.py"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.removeprefix("[rank 0] ")) == ddpnb.__file__


@pytest.fixture(scope="module")
def folder():
    """All users can read it, as they cannot pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="anywhere-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def clone(folder):
    made = folder / "Eine Übung" / "ddpnb"
    listed = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, made / name)
    subprocess.run(["chmod", "-R", "a+rX,go-w", folder], check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", made / "ddpnb"], check=True)  # others cannot write there
    return made


@pytest.fixture(scope="module")
def public_python(folder):
    """An interpreter with the packages of this one that other users can run: this one may lie in a private folder."""
    base, copied, environment = Path(sys.base_prefix), folder / "python", folder / "environment"
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    left_out = shutil.ignore_patterns("site-packages", "test")
    shutil.copytree(base / "lib", copied / "lib", symlinks=True, ignore=left_out)
    (copied / "bin").mkdir()
    shutil.copy2(base / "bin" / name, copied / "bin" / name)
    libraries = {"LD_LIBRARY_PATH": str(copied / "lib")}
    create = [copied / "bin" / name, "-m", "venv", "--without-pip", environment]
    subprocess.run(create, env={**os.environ, **libraries}, check=True)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (environment / "lib" / name / "site-packages" / "packages.pth").write_text("\n".join(packages))
    return str(environment / "bin" / "python"), libraries


@contextmanager
def busy_loops(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def assert_green(clone, folder, before=(), umask=0o022, python=sys.executable, **changes):
    """The handful passes in that clone. A variable that is None is not there."""
    temporary = Path(tempfile.mkdtemp(dir=folder))
    temporary.chmod(0o1777)
    variables = {**os.environ, "PYTHONPATH": str(clone), "TMPDIR": str(temporary), **changes}
    done = subprocess.run(
        [*before, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *HANDFUL],
        cwd=clone, env={name: value for name, value in variables.items() if value is not None}, umask=umask,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout
    for line in done.stdout.splitlines():
        assert not line.startswith("SKIPPED") or "GPU" in line, line


@pytest.mark.full
@pytest.mark.timeout(900)
class TestGreen:
    def test_in_the_background_with_a_simple_terminal_and_a_private_umask(self, clone, folder):
        """Signals of the terminal are ignored there."""
        background = ["sh", "-c", 'nohup setsid "$@" & wait $!', "sh"]
        assert_green(clone, folder, background, umask=0o077, TERM="dumb")

    def test_in_a_terminal_without_a_home(self, clone, folder, tmp_path):
        assert_green(clone, folder, [sys.executable, "-c", IN_TERMINAL], HOME=None, TERM="xterm-256color")

    def test_beside_busy_loops(self, clone, folder):
        with busy_loops(4):
            assert_green(clone, folder)

    @pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root becomes another user")
    @pytest.mark.parametrize("home", ["missing", "read-only"])
    def test_as_another_user(self, clone, folder, public_python, home):
        python, variables = public_python
        subprocess.run(["chown", "-R", "65534", clone], check=True)
        place = folder / home
        if home == "read-only":
            place.mkdir()
        assert_green(clone, folder, NOBODY, python=python, HOME=str(place), **variables)


# Standard output and standard error of the arguments' command are a terminal.
IN_TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
