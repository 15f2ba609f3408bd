"""The tour notebook in JupyterLab, in a real browser: run every cell, read the card.

``DDPNB_SCREENSHOTS=DIR`` keeps pictures of the card in both themes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


@pytest.fixture
def lab(tmp_path):
    """A JupyterLab of its own, in a copy of the notebooks."""
    work = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, work, ignore=shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
    }
    settings = tmp_path / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--allow-root",
         "--IdentityProvider.token=", "--ServerApp.port_retries=0"],
        cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/api", timeout=1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.2)
        yield url, settings
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.browser
@pytest.mark.timeout(240)
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_run_all_cells(lab, theme):
    url, settings = lab
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": f"JupyterLab {theme}"}))
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1180, "height": 1400})
        page.goto(f"{url}/lab/tree/tour.ipynb?reset")
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        card = page.get_by_role("article", name="DDP301")
        expect(card).to_be_visible(timeout=90_000)
        expect(card).to_contain_text("Rank 1 will never make the all_reduce")
        expect(card.locator("a", has_text="train.py:").first).to_be_visible()
        expect(page.get_by_text("ok: the script ended well on all ranks")).to_be_visible(timeout=90_000)
        folder = os.environ.get("DDPNB_SCREENSHOTS")
        if folder:
            card.scroll_into_view_if_needed()
            page.screenshot(path=os.path.join(folder, f"tour-{theme.lower()}.png"))
            page.get_by_role("group", name="diagnosis").first.screenshot(
                path=os.path.join(folder, f"card-{theme.lower()}.png")
            )
        link = card.locator("a", has_text="train.py:").first
        link.click()
        expect(page.get_by_role("tab", name="train.py")).to_be_visible(timeout=15_000)
        browser.close()
