"""One world of four ranks for all tests that can share it: a launch costs seconds."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

import ddpnb
from ddpnb.cli import main
from ddpnb.ranks import forks as forks_module
from ddpnb.ranks.devices import count_gpus
from ddpnb.ranks.engines import cluster
from ddpnb.ranks.forks import ForkServers
from ddpnb.studies.bisection import probing
from ddpnb.world import plain_run
from tests.forked import programs
from tests.recordings.scenario import free
from tests.shared_forks import SharedForks

# Before torch is imported: on a busy machine its threads spin in wait for each other, and a step takes 300 ms.
os.environ.setdefault("OMP_NUM_THREADS", "1")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
VICTIMS = Path(__file__).parent / "victims"
#: in the environment of all that a session of pytest starts: by this it is found, whatever its parent is
MARK = "TESTS_THAT_STARTED_IT"
# Differ from World to World, and no import reads them.
NOT_IMPORTED = {"PYTEST_CURRENT_TEST", "IPP_CLUSTER_ID", "IPP_PROFILE_DIR", "DDPNB_SHM", "DDPNB_LOOKS", "COLUMNS"}


if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as of a job in the background: what the tests start would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)

if count_gpus():  # what is not about GPUs runs on the CPU, with as many ranks as it wants
    os.environ.setdefault("DDP_BACKEND", "gloo")


def pytest_addoption(parser):
    parser.addoption(
        "--full",
        action="store_true",
        help="also run the tests marked `full`, and run scenarios on real ranks: recordings that changed are written",
    )
    parser.addoption(
        "--accept", action="store_true", help="write what is now diagnosed from the recordings of scenarios as expected"
    )


def pytest_configure(config):
    """Mark what is started from now on; a worker of xdist leaves the mark of the session, which ends what it has started."""
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = f"{os.environ.get(MARK, '')}{os.getpid()}/"


def pytest_unconfigure(config):
    """End what tests have left, as where one that waits for torchrun is interrupted: its ranks have sessions of their own."""
    if not hasattr(config, "workerinput"):
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK, "").startswith(os.environ[MARK]):
                    process.kill()
        os.environ[MARK] = os.environ[MARK].removesuffix(f"{os.getpid()}/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what only ``--full`` runs, and begin with what takes longest: files are handed out in this order."""
    skip_without_gpus(items)
    for mark, wanted in (("full", config.getoption("--full")), ("matrix", "matrix" in config.option.markexpr)):
        left_out = [item for item in items if not wanted and item.get_closest_marker(mark)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if wanted or not item.get_closest_marker(mark)]
    for item in items:
        if item.get_closest_marker("full") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))  # it takes longer than others, and other tests run beside it
        if item.get_closest_marker("browser"):
            item.fixturenames.insert(0, "chromium")  # first of all: where it is missing, nothing is started in vain
    slow = {item.path for item in items if item.get_closest_marker("world") or item.get_closest_marker("browser")}
    items.sort(key=lambda item: item.path not in slow)  # stable: the files stay in one piece


gc.disable()  # until all tests are collected: there is no garbage among them


def pytest_collection_finish():
    """What is there from now on is not looked at by each collection of garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """What is missing here is said once, however many tests are skipped for it."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (str(Path(__file__).parent), None, report.longrepr[2])
    return report


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--full") and terminalreporter.stats.get("passed"):
        terminalreporter.write_line(
            "Scenarios were diagnosed from their recordings. `make test-all` runs them, and slower tests, on real ranks."
        )


def skip_without_gpus(items):
    """Skip what needs more GPUs than there are, and say so: ``make gpu`` runs it, or fails where there is none."""
    wanted = [
        (item, 2 if item.get_closest_marker("multigpu") else 1) for item in items if item.get_closest_marker("gpu")
    ]
    there = count_gpus() if wanted else 0
    for item, count in wanted:
        if there < count:
            item.add_marker(pytest.mark.skip(reason="needs a GPU" if count == 1 else "needs several GPUs"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where worlds have their folders."""
    monkeypatch.setenv("DDPNB_SHM", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"ddpnb-{os.geteuid()}"


@pytest.fixture(scope="session")
def forks(request) -> bool:
    """Whether shared worlds fork their ranks, at a tenth of the cost; ``--full`` starts new interpreters, as ``launch``."""
    return sys.platform == "linux" and not request.config.getoption("--full")


@pytest.fixture(scope="session")
def forked():
    """Runs programs that need torch in processes of their own."""
    with programs() as forked:
        yield forked


@pytest.fixture(scope="session")
def shared_world(forks):
    with ddpnb.launch(
        4, patience=3.0, end_after_patience=True, quiet=True, timeout=240, fork="training" if forks else False
    ) as world:
        yield world


@pytest.fixture
def world(shared_world):
    """The shared world: every rank lives and is free."""
    free(shared_world)
    return shared_world


@pytest.fixture(scope="session")
def fork_servers():
    """Forks the ranks of the runs of all tests from one process that has torch imported."""
    with pytest.MonkeyPatch.context() as patch:  # runs with another environment would not share it
        patch.setattr(forks_module, "_OF_A_RUN", forks_module._OF_A_RUN | NOT_IMPORTED)
        patch.setattr(forks_module, "_IDLE_S", 3600.0)  # other tests run meanwhile, and torch is not imported again
        made = ForkServers(most=4)  # runs, and Worlds
        yield made
        made.close()


@pytest.fixture(scope="session", autouse=True)
def one_import(forks, fork_servers):
    """Worlds with ``fork`` share the process that forks, as runs do: not each of them imports torch."""
    with pytest.MonkeyPatch.context() as patch:
        if forks:
            patch.setattr(cluster, "ForkServer", partial(SharedForks, fork_servers))
        yield


@pytest.fixture
def cli(fork_servers, monkeypatch, capfd):
    """``ddpnb`` in this process, without its start; with ``--fork`` its ranks come from the process that all tests share.

    ``fork=True`` is for commands that have no such option.
    """

    def typed(*args, cwd=None, fork=False):
        class Run(plain_run.PlainRun):
            def __init__(self, *given, **more):
                super().__init__(
                    *given, **{**more, "fork_servers": fork_servers, "fork": fork or more.get("fork", False)}
                )

        arguments = [*map(str, args)]
        with monkeypatch.context() as patch:
            patch.setattr(plain_run, "PlainRun", Run)
            patch.setattr(probing, "ForkServers", lambda: fork_servers)
            if cwd is not None:
                patch.chdir(cwd)
            capfd.readouterr()
            try:
                status = main(arguments)
            except SystemExit as end:  # argparse
                status = int(end.code or 0)
        return subprocess.CompletedProcess(arguments, status, *capfd.readouterr())

    return typed


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests: Playwright drives no second one in the same thread."""
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        except PlaywrightError:
            pytest.skip("tests in a browser: neither chromium nor Playwright's starts (make browser installs one)")
        yield browser
        browser.close()


@pytest.fixture
def victims() -> Path:
    return VICTIMS


def marked_lines(script: Path, mark: str, case: str) -> set[int]:
    """Lines of a victim that carry ``# mark`` or ``# mark: case``."""
    pattern = re.compile(rf"# {mark}(: {case}\b|\s*$)")
    return {number for number, line in enumerate(script.read_text().splitlines(), 1) if pattern.search(line)}


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_below() -> set[psutil.Process]:
    """All processes below this one, but for the browser's: it starts and ends some at any time."""
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "playwright" not in " ".join(child.cmdline()):
                found |= {child, *child.children(recursive=True)}
    return found


@pytest.fixture(autouse=True)
def _as_in_a_new_process():
    """No variables of the terminal and no figures of other tests. Without ``monkeypatch``, which would cost seconds in all."""
    own = {name: os.environ.pop(name, None) for name in ("COLUMNS", "DDP_BACKEND", "RANK", "WORLD_SIZE", "MASTER_PORT")}
    os.environ["COLUMNS"] = "100"
    yield
    for name, value in own.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:  # it keeps the figures of plots
        pyplot.close("all")
