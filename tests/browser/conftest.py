"""One JupyterLab, started as a user starts it, and one Chromium for all tests in the browser.

Pictures are kept in ``artifacts/``, or in the folder that ``DDPNB_SCREENSHOTS`` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
READY_MS = 90_000
expect.set_options(timeout=30_000)


@dataclass
class Lab:
    """A JupyterLab of its own, in a copy of the notebooks."""

    url: str
    work: Path
    settings: Path

    def write(self, name: str, *cells: str) -> str:
        """A notebook of these cells."""
        made = [
            {
                "cell_type": "code",
                "id": f"cell{n}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": text,
            }
            for n, text in enumerate(cells)
        ]
        kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
        book = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        (self.work / name).write_text(json.dumps(book))
        return name

    def ask(self, path: str, method: str = "GET", body: object = None):
        data = None if body is None else json.dumps(body).encode()
        same = {"Cookie": "_xsrf=abcd", "X-XSRFToken": "abcd"}  # what a page of the server would send
        request = urllib.request.Request(f"{self.url}/api/{path}", data, same, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def open(self, page: Page, name: str, theme: str = "Light") -> None:
        """Open a notebook and wait for its kernel."""
        wanted = json.dumps({"theme": f"JupyterLab {theme}"})
        (self.settings / "themes.jupyterlab-settings").write_text(wanted)
        page.goto(f"{self.url}/lab/tree/{name}?reset")
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=READY_MS)

    def run_all(self, page: Page) -> None:
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    work = folder / "notebooks"
    shutil.copytree(NOTEBOOKS, work, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
    }
    extensions = folder / "data" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "ddpnb").symlink_to(ROOT / "ddpnb" / "labextension")  # whichever is installed
    settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
         "--IdentityProvider.token=", "--ServerApp.port_retries=0", f"--LabApp.extra_labextensions_path={extensions}"],
        cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    lab = Lab(f"http://127.0.0.1:{port}", work, settings)
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                lab.ask("status")
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.2)
        yield lab
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def lab(server):
    yield server
    for session in server.ask("sessions"):
        with contextlib.suppress(urllib.error.HTTPError):  # it shares its kernel with one that is ended already
            server.ask(f"sessions/{session['id']}", "DELETE")  # ends the kernel, and with it its worlds


@pytest.fixture
def page(chromium):
    """A page in whose console no error may appear."""
    page = chromium.new_page(viewport={"width": 1250, "height": 1400})
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
    page.set_default_timeout(60_000)
    yield page
    page.close()
    assert not errors, errors


def kept(name: str, folder: str = "") -> Path:
    """Where a picture of the last tests is kept: among the artefacts of CI, or in this folder."""
    path = Path(folder or ROOT / "artifacts")
    path.mkdir(exist_ok=True)
    return path / f"{name}.png"


def of_docs(name: str) -> Path:
    """Where a picture is kept that the docs show: `make pictures` sets the folder."""
    return kept(name, os.environ.get("DDPNB_SCREENSHOTS", ""))


def picture(page: Page, name: str) -> None:
    """Keep a picture of the page."""
    page.screenshot(path=kept(name))
