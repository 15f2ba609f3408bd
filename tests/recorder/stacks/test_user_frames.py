"""Whose code a frame runs."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.fx

from ddpnb.recorder.stacks import user_frames
from ddpnb.recorder.stacks.user_frames import (
    calling_frame,
    is_own_frame,
    is_torch_file,
    is_user_file,
    is_user_frame,
    user_path,
)
from ddpnb.recording.calls import Site

CLASS = "import dataclasses\n@dataclasses.dataclass\nclass Sample:\n    index: object\n"


class Looks:
    """As a field of a data class: sees who calls its ``repr``."""

    def __repr__(self):
        frame = sys._getframe(1)
        assert (frame.f_code.co_filename, frame.f_code.co_name) == ("<string>", "__repr__")
        self.frame, self.calling, self.path = frame, calling_frame(2), user_path(20)
        return ""


def of_generated_code(made):
    """What is seen from the method that dataclasses has generated for this class."""
    looks = Looks()
    repr(made(looks))
    return looks


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A folder of libraries."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(user_frames, "_LIBRARIES", (f"{folder}/", *user_frames._LIBRARIES))
    return folder


def test_generated_methods_of_a_library_are_not_the_users(installed, monkeypatch):
    path = installed / "samples.py"
    path.write_text(CLASS)
    spec = importlib.util.spec_from_file_location("samples", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "samples", module)  # dataclasses looks for it
    spec.loader.exec_module(module)
    seen = of_generated_code(module.Sample)
    assert not is_user_frame(seen.frame) and not is_own_frame(seen.frame)
    assert seen.calling.f_code.co_name == "of_generated_code"
    around = [frame.filename for frame in inspect.stack()]  # a worker of the tests is itself such code
    assert [file for file, _, _ in seen.path].count("<string>") == around.count("<string>")


def test_generated_methods_of_ddpnb_are_its_own():
    seen = of_generated_code(lambda looks: Site(looks, 1, ""))
    assert is_own_frame(seen.frame) and not is_user_frame(seen.frame)
    assert seen.calling.f_code.co_name == "of_generated_code"


@pytest.mark.parametrize("names", [{"__file__": "/home/me/train.py"}, {}], ids=["of a module", "of python -c"])
def test_text_that_the_user_has_compiled_is_theirs(names):
    exec("def step():\n    repr(looks)\ndef __repr__():\n    step()", names)
    seen = []
    names["repr"] = lambda _: seen.append((sys._getframe(1), calling_frame(2)))
    names["looks"] = None
    names["__repr__"]()
    ((frame, calling),) = seen
    assert is_user_frame(frame) and calling is frame


def test_a_thread_that_a_library_has_started_is_at_no_line():
    """It was said to be in ``concurrent/futures/thread.py``, or where the main thread happened to be."""

    def own():
        return calling_frame()

    with ThreadPoolExecutor(1) as pool:
        # Called by C, as the collectives of torch are: the innermost frames are those of the standard library.
        assert pool.submit(user_frames.calling_frame, 1).result() is None
        assert pool.submit(own).result().f_code.co_filename == __file__


def test_the_thread_of_a_library_of_torch_is_named():
    def begins():
        return user_frames.library_of(sys._getframe())

    names = {"__name__": "torch.distributed.checkpoint._async_thread_executor", "begins": begins}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(eval, "begins()", names).result() == "torch.distributed.checkpoint"
        assert pool.submit(begins).result() == ""


def test_what_torch_generates_is_not_the_users(monkeypatch):
    """The graph of a compiled function calls its collectives, on behalf of the function."""
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    generated = graph.forward.__func__.__code__.co_filename
    assert user_frames.is_generated(generated) and not is_user_file(generated) and is_torch_file(generated)
    assert not is_user_file("/tmp/torchinductor_ann/ab/cabc.py")
    is_user_file.cache_clear()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/scratch/cache")
    assert not is_user_file("/scratch/cache/ab/cabc.py") and is_user_file("/scratch/cached.py")
    is_user_file.cache_clear()


def test_a_thread_of_torch_has_no_caller_in_python():
    """As where autograd runs DDP's hooks for a device: what it calls is the outermost frame."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(user_frames.calling_frame, 1000).result() is not None  # that of the main thread
    assert user_frames.calling_frame(100_000) is None


@pytest.mark.parametrize("folder", ["/opt/stack/lib/python3.13/site-packages", "/usr/lib/python3/dist-packages"])
def test_what_is_installed_in_another_environment_is_not_the_users(folder):
    """A .pth file or PYTHONPATH adds it: a fresh script must not load such a package a second time."""
    assert not is_user_file(f"{folder}/numpy/__init__.py") and is_user_file("/home/ann/site-packages.py")


def test_code_that_is_freed_is_not_kept():
    """The compiler of torch cleans up after code of its own when that is freed: at the exit of the program it is too late."""

    def seen():
        code = compile("frame = look()", "mine.py", "exec")
        key, found = id(code), {}
        exec(code, {"look": lambda: found.setdefault(key, calling_frame(2).f_code.co_filename)})
        assert found == {key: "mine.py"} and key in user_frames._kinds
        return key

    assert seen() not in user_frames._kinds
