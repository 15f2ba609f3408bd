"""What users install: the wheel, built from the source distribution, in an environment without this checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import ddpnb
from tests.docs.code_blocks import blocks

ROOT = Path(__file__).parents[1]
EXECUTE = """
import nbformat, sys
from nbclient import NotebookClient

book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=240, kernel_name="python3").execute()
nbformat.write(book, sys.argv[1])
"""


def test_the_version_has_its_part_in_the_changelog():
    assert re.search(
        rf"(?m)^## {re.escape(ddpnb.__version__)} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text()
    )


def test_each_change_is_a_file_that_the_changelog_takes():
    kinds = {
        kind["directory"] for kind in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
    }
    for path in (ROOT / "changes").iterdir():
        name, kind, end = path.name.split(".") if path.name != "README.md" else ("README", "new", "md")
        assert (kind in kinds, end, bool(name)) == (True, "md", True), path.name
        assert path.read_text().strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The interpreter of a new environment with the wheel; all else comes from this one, of which no ``.pth`` file counts."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", built[1]]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return python


def run(python, *command, cwd, timeout=280):
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [python, *command], cwd=cwd, env=variables, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.full
def test_a_source_distribution_holds_what_is_tracked_and_needed(built):
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not names - {*tracked, "PKG-INFO"}
    assert {name.partition("/")[0] for name in names} == {
        "ddpnb", "docs", "notebooks", ".gitignore", "pyproject.toml", "PKG-INFO", "LICENSE", *(p.name for p in ROOT.glob("*.md")),
    }  # fmt: skip


@pytest.mark.full
def test_a_wheel_holds_the_package_and_the_extension(built):
    with zipfile.ZipFile(built[1]) as archive:
        names = archive.namelist()
    tops = {re.sub(r"^ddpnb-[^/]+\.", "", name.partition("/")[0]) for name in names}
    assert tops == {"ddpnb", "dist-info", "data"}
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|/tests/|\.ipynb", name)]
    for needed in (
        "ddpnb/recorder/inject/site/sitecustomize.py",
        "ddpnb/render/style.css",
        "labextensions/ddpnb/package.json",
    ):
        assert any(name.endswith(needed) for name in names), needed


@pytest.mark.full
@pytest.mark.world
@pytest.mark.timeout(400)
class TestInstalled:
    def test_it_is_what_is_imported(self, installed, tmp_path):
        code = "import ddpnb, json; print(json.dumps([ddpnb.__file__, ddpnb.__version__]))"
        file, version = json.loads(run(installed, "-c", code, cwd=tmp_path).stdout)
        assert Path(file).is_relative_to(installed.parents[1]) and version == ddpnb.__version__

    def test_the_example_of_the_readme(self, installed, tmp_path):
        script = next(
            block.text for block in blocks((ROOT / "README.md").read_text()) if "dist.init_process_group" in block.text
        )
        (tmp_path / "hang.py").write_text(script)
        done = run(installed, "-m", "ddpnb", "run", "-n", "4", "hang.py", cwd=tmp_path)
        assert (done.returncode, "DDP308" in done.stderr) == (3, True), done.stderr

    def test_a_notebook(self, installed, tmp_path):
        for name in ("tour.ipynb", "train.py"):
            (tmp_path / name).write_bytes((ROOT / "notebooks" / name).read_bytes())
        done = run(installed, "-c", EXECUTE, "tour.ipynb", cwd=tmp_path, timeout=380)
        assert done.returncode == 0, done.stderr
        cells = json.loads((tmp_path / "tour.ipynb").read_text())["cells"]
        shown = json.dumps([cell.get("outputs", []) for cell in cells])
        assert "DDP301" in shown and "DDP405" in shown, shown
