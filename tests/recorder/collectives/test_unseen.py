"""What communicates in a process beside the door: it is noticed, and frames of it are known. Nothing of it is called."""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
import types

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from ddpnb.recorder.channel import threads
from ddpnb.recorder.collectives import unseen
from ddpnb.recorder.collectives.door import Door
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.stacks import MAX_UNSEEN, stacks_in, unseen_in


@pytest.fixture
def loaded(monkeypatch):
    """Puts modules of these names into the process."""
    monkeypatch.setattr(unseen, "_files_seen", (float("inf"), ()))  # those of this machine do not matter

    def load(name, code="", file="/venv/lib/python3/site-packages/lib.py"):
        module = types.ModuleType(name)
        module.__dict__.update(__file__=file)
        exec(compile(code, file, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return load


def look():
    """In which communication that does not pass the door the main thread is, as another thread sees it."""
    seen = []
    looker = threading.Thread(target=lambda: seen.extend(stacks_in(threads.stacks(False))))
    looker.start()
    looker.join()
    (main,) = [stack for stack in seen if stack.main]
    return main.unseen


# -- what is loaded


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("vllm.distributed.device_communicators.pynccl", "pynccl of vllm"),
        ("sglang.srt.distributed.device_communicators.pynccl_wrapper", "pynccl of sglang"),
        ("vllm.distributed.device_communicators.custom_all_reduce", "custom all-reduce of vllm"),
        ("cupy.cuda.nccl", "NCCL of CuPy"),
        ("nvshmem.core", "NVSHMEM"),
        ("torchcomms", "torchcomms"),
        ("mpi4py.MPI", "mpi4py"),
        ("horovod.torch", "Horovod"),
        ("deep_ep.buffer", "DeepEP"),
        ("ucp", "UCX"),
        ("torchft.manager", "torchft"),
    ],
)
def test_a_library_is_noticed_by_its_modules(loaded, module, name):
    before = unseen.noticed()
    loaded(module)
    assert [one for one in unseen.noticed() if one not in before] == [name]


def test_other_modules_are_not(loaded):
    before = unseen.noticed()
    for name in ("cupy", "ucphost", "torch.cuda.nccl", "my_mpi4py", "horovodish", "vllm.model_executor"):
        loaded(name)
    assert unseen.noticed() == before


def test_symmetric_memory_counts_once_there_is_some(loaded):
    """DTensor imports its module, whether it is used or not."""
    loaded("torch.distributed._symmetric_memory", "_group_name_to_store = {}")
    assert "symmetric memory of torch" not in unseen.noticed()
    loaded("torch.distributed._symmetric_memory", "_group_name_to_store = {'0': object()}")
    assert "symmetric memory of torch" in unseen.noticed()


def test_what_is_in_the_table_of_modules_may_be_anything(loaded, monkeypatch):
    class Lazy:
        def __getattr__(self, name):
            raise AssertionError("an attribute was asked for")

        __bool__ = __getattr__

    monkeypatch.setitem(sys.modules, "deep_ep", Lazy())
    monkeypatch.setitem(sys.modules, "mscclpp", None)
    loaded("nixl")
    found = unseen.noticed()
    assert {"DeepEP", "NIXL"} <= set(found) and "MSCCL++" not in found


def test_files_that_torch_does_not_bring():
    site = "/venv/lib/python3/site-packages"
    own = f"{site}/nvidia/nccl/lib/libnccl.so.2", f"{site}/nvidia/nvshmem/lib/libnvshmem_host.so.3"
    assert list(unseen._named({*own, "/lib/libc.so.6"})) == []
    others = "/usr/lib/libmpi.so.40", "/opt/nvshmem/lib/libnvshmem_host.so.3", "/usr/lib/libnccl.so.2"
    assert list(unseen._named({*own, *others})) == ["a second NCCL", "NVSHMEM", "MPI"]
    assert any("libtorch" in path for path in unseen._loaded())


def test_the_files_are_read_again_only_when_some_were_loaded(monkeypatch):
    """A rank that waits must not seem to compute since somebody looks at it."""
    looks = []
    monkeypatch.setattr(unseen, "_loaded", lambda: looks.append(1) or {"/opt/libmpi.so"})
    monkeypatch.setattr(unseen, "_MAPS_S", 0.0)
    monkeypatch.setattr(unseen, "_files_seen", (0.0, ()))
    monkeypatch.setattr(unseen, "_code_seen", -1)
    sizes = iter((100, 100, 100, 200, -1, -1))
    monkeypatch.setattr(unseen, "_library_code", lambda: next(sizes))
    assert {unseen._files() for _ in range(6)} == {("MPI",)}
    assert len(looks) == 4


def test_the_size_of_library_code_is_known_here():
    assert unseen._library_code() > 0


def test_what_a_rank_answers_is_bounded_and_may_be_anything():
    assert unseen_in(None) == unseen_in({"a": 1}) == ()
    assert len(unseen_in(["x"] * 99)) == MAX_UNSEEN
    assert all(name.isprintable() and len(name) <= 200 for name in unseen_in(["\x1b" * 999, 7]))


# -- where a thread is


class Managed(dist.ProcessGroup):
    def allreduce(self, tensors, opts=None):
        return helper()

    def size(self):
        raise AssertionError("a method of the user's was called")

    group_name = property(size)
    __getattr__ = size


def helper():
    return look()


class Mine(torch._C._distributed_c10d.Work):
    def wait(self, timeout=None):
        return look()


def test_a_method_of_a_group_in_python_also_where_it_calls_other_code():
    assert Managed(0, 1).allreduce([]) == "allreduce of Managed (a group in Python)"
    assert look() == ""
    assert any(name.startswith("process groups in Python (tests") for name in unseen.noticed())


def test_a_wait_of_a_work_in_python():
    assert Mine().wait() == "wait of Mine (a Work in Python)"


def while_it_waits(call):
    """The same while the call waits for an event that it is given."""
    event, seen = threading.Event(), []

    def looker():
        while not event._cond._waiters:
            time.sleep(0.01)
        seen.extend(stacks_in(threads.stacks(False)))
        event.set()

    thread = threading.Thread(target=looker)
    thread.start()
    call(event)
    thread.join()
    return seen[0].unseen


def test_a_wait_for_a_work_that_no_recorded_call_has_given(tmp_path):
    """As those of a backend that the program calls by itself, or of a group that is reconfigured."""
    door = Door(BlackBox(str(tmp_path / "rank0.box"), 0), str(tmp_path))
    door.open()
    main, future, seen = threading.get_ident(), torch.futures.Future(), []

    def looker():
        while sys._current_frames()[main].f_code.co_name != "watched_wait":
            time.sleep(0.01)
        seen.extend(stacks_in(threads.stacks(False)))
        future.set_result([])

    thread = threading.Thread(target=looker)
    thread.start()
    try:
        _create_work_from_future(future).wait()
    finally:
        door.close()
        thread.join()
    assert seen[0].unseen == "wait of a Work that is not recorded"


@pytest.mark.parametrize("file", [f"{sysconfig.get_path('purelib')}/lib.py", "/home/user/vllm/lib.py"])
def test_a_function_of_a_library_wherever_it_is_installed(loaded, file):
    code = "def all_reduce(event):\n    return _inner(event)\ndef _inner(event):\n    event.wait()"
    lib = loaded("vllm.distributed.device_communicators.pynccl", code, file)
    assert while_it_waits(lib.all_reduce) == "all_reduce of pynccl of vllm"


def test_a_library_that_has_called_the_program_does_not_communicate(loaded):
    """``python -m mpi4py train.py``: its frames are below the whole program."""
    lib = loaded("mpi4py.run", "def main(program, event):\n    return program(event)")
    assert while_it_waits(lambda event: lib.main(lambda given: given.wait(), event)) == ""
