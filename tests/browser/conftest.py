"""One JupyterLab, started as a user starts it, and one page of one Chromium for all tests in the browser.

Its kernels fork the ranks of worlds where a notebook does not ask for something else: they start sooner. What every
`make test` runs is in one file, so that one process has the one JupyterLab. Pictures are kept in ``artifacts/``, or in the folder that ``DDPNB_SCREENSHOTS`` names.
"""

from __future__ import annotations

import base64
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ElementHandle, Locator, Page, expect

from ddpnb.recording.protocol import FORK

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
LONG_MS = 120_000  # for ranks to start, run and be diagnosed, beside other tests
VIEWPORT = {"width": 1250, "height": 1400}
RULES = [
    "color-contrast", "button-name", "label", "select-name", "aria-valid-attr-value", "aria-allowed-attr",
    "aria-required-children", "aria-roles", "image-alt", "list", "listitem", "nested-interactive", "th-has-data-cells",
    "empty-table-header", "scrollable-region-focusable", "svg-img-alt", "summary-name",
]  # fmt: skip
expect.set_options(timeout=60_000)


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

    def use(self, theme: str) -> None:
        """Use the light or the dark theme in pages that are opened from now on."""
        (self.settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": f"JupyterLab {theme}"}))

    def open(self, page: Page, name: str, theme: str = "Light") -> None:
        """Open a notebook and wait for its kernel. One of the project has no outputs of an earlier test."""
        self.use(theme)
        if (NOTEBOOKS / name).is_file():
            shutil.copyfile(NOTEBOOKS / name, self.work / name)
        page.goto(f"{self.url}/lab/tree/{name}?reset")
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=3 * LONG_MS)

    def run_all(self, page: Page) -> None:
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()

    def end_kernels(self) -> None:
        """End all kernels, and with them their worlds."""
        for session in self.ask("sessions"):
            with contextlib.suppress(urllib.error.HTTPError):  # its kernel was that of a session that is ended already
                self.ask(f"sessions/{session['id']}", "DELETE")


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
        FORK: "training",  # with what the first optimizer imports
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
    deadline = time.monotonic() + 300
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
        try:
            process.wait(60)  # it ends its kernels first
        finally:
            process.kill()


@pytest.fixture
def lab(server):
    yield server
    server.end_kernels()


@pytest.fixture(scope="session")
def tab(chromium):
    """One page for all tests: it keeps the scripts of JupyterLab."""
    page = chromium.new_page(viewport=VIEWPORT)
    page.set_default_timeout(60_000)
    yield page
    page.close()


_NETWORK = "net::ERR_NETWORK_CHANGED"  # other tests simulate hosts: the browser asks again by itself
_LATE = "[anywidget] Failed to initialize model."  # within 2 s, on a busy machine: the widget takes messages all the same (hearing.js)


@pytest.fixture
def complaints(tab):
    """The errors in the console of the page."""
    errors: list[str] = []

    def take(said) -> None:
        if said.type == "error" and _NETWORK not in said.text:
            errors.append(said.text)

    def take_error(error) -> None:
        if _LATE not in str(error):
            errors.append(f"{error}\n{error.stack}")

    tab.on("console", take)
    tab.on("pageerror", take_error)
    yield errors
    tab.remove_listener("console", take)
    tab.remove_listener("pageerror", take_error)


@pytest.fixture
def page(lab, tab, complaints):
    """The page. No error may appear in its console."""
    tab.set_viewport_size(VIEWPORT)
    yield tab
    tab.goto("about:blank")  # before its kernel ends, which it would complain about
    assert not complaints, complaints


def of(page: Page, label: str) -> Locator:
    """The part of the dashboard that a screen reader calls so."""
    return page.get_by_role("group", name=label, exact=True)


def unfold(page: Page, title: str) -> None:
    """Unfold or fold a part of the dashboard."""
    page.locator(".ddpnb details.part > summary", has_text=title).click()


def boxes(part: Locator) -> list[dict[str, float]]:
    """Where the buttons of a part are, from its upper left corner."""
    corner = part.bounding_box()
    return [
        {**box, "x": round(box["x"] - corner["x"], 1), "y": round(box["y"] - corner["y"], 1)}
        for button in part.get_by_role("button").all()
        if (box := button.bounding_box()) is not None
    ]


def check_access(page: Page) -> None:
    """Check what ddpnb shows with axe: the contrast of its colours, and what a screen reader needs."""
    found = Axe().run(page, context={"include": [[".ddpnb"]]}, options={"runOnly": RULES})
    assert not found.response["violations"], found.generate_report()


DROP = """(area, files) => {
  const transfer = new DataTransfer();
  for (const [name, content] of files)
    transfer.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], name));
  for (const type of ["dragenter", "dragover", "drop"])
    area.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def drop(page: Page, **files: bytes) -> None:
    """Drop files onto the page, as from a file manager."""
    given = [[name.replace("_", "."), base64.b64encode(content).decode()] for name, content in files.items()]
    of(page, "files of a report").locator(".drop").evaluate(DROP, given)


def cells_of(notebook: str) -> list[dict]:
    """The cells of a notebook of the project."""
    return json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]


def run_cell(page: Page) -> ElementHandle:
    """Run the chosen cell with the button above, which chooses the next one. Does not wait for it."""
    cell = page.locator(".jp-Cell.jp-mod-active").element_handle()
    page.get_by_role("button", name="Run this cell and advance").click()
    return cell


def run_cells(page: Page, count: int) -> None:
    """Run the first cells of the notebook."""
    page.locator(".jp-Cell").first.click()
    for _ in range(count):
        run_cell(page)


def wait_for(page: Page, cell: ElementHandle) -> None:
    """Wait until a cell of code has run: JupyterLab then shows its number instead of a star."""
    prompt = "cell => /\\[\\d+\\]/.test(cell.querySelector('.jp-InputPrompt').textContent)"
    page.wait_for_function(prompt, arg=cell, timeout=2 * LONG_MS, polling=200)  # and not in every frame of the page


def errors_of(cell: ElementHandle) -> list[str]:
    """What a cell shows in red: exceptions, and what was written to stderr."""
    shown = cell.query_selector_all("[data-mime-type='application/vnd.jupyter.stderr']")
    return [error.inner_text() for error in shown]


def run_to_the_end(page: Page, notebook: str, first: int = 0, after: Callable[[str], None] | None = None) -> None:
    """Run all cells of a notebook one by one. Only those fail that say so.

    Args:
        first: the number of the first cell that is run.
        after: called with the name of each cell of code that has run.
    """
    page.locator(".jp-Cell").nth(first).click(position={"x": 20, "y": 10})
    for cell in cells_of(notebook)[first:]:
        shown = run_cell(page)
        if cell["cell_type"] == "code":
            wait_for(page, shown)
            errors = errors_of(shown)
            assert bool(errors) == ("raises-exception" in cell["metadata"].get("tags", [])), (cell["id"], errors)
            if after is not None:
                after(cell["id"])


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
