"""What runs on a rank needs torch alone; what reads a report needs numpy at most."""

from __future__ import annotations

import subprocess
import sys

import pytest

RANK = "ddpnb.recorder.rank", "ddpnb.recorder.control_channel", "ddpnb.recorder.door", "ddpnb.recorder.script"
READER = (
    "ddpnb.diagnosis.diagnose",
    "ddpnb.render.card",
    "ddpnb.render.pages",
    "ddpnb.model.findings",
    "ddpnb.model.blackbox",
)
NOTEBOOK = [
    "ipyparallel",
    "IPython",
    "ipywidgets",
    "matplotlib",
    "rich",
    "markdown_it",
    "jupyterlab",
    "psutil",
    "cloudpickle",
    "zmq",
    "traitlets",
]


@pytest.mark.parametrize(("modules", "forbidden"), [(RANK, NOTEBOOK), (READER, [*NOTEBOOK, "torch"])])
def test_imports_alone(modules, forbidden):
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {forbidden!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import importlib
for module in {modules!r}:
    importlib.import_module(module)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_package_itself_is_lazy():
    code = "import sys, ddpnb; assert not {'torch', 'ipyparallel', 'numpy', 'rich'} & set(sys.modules); dir(ddpnb)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
