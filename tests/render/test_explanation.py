"""``ddpnb.explain``: codes, exceptions, logs, and texts that it does not know."""

from __future__ import annotations

import importlib
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import ddpnb
from ddpnb.errors import CollectiveMismatch, UsageError
from ddpnb.recording.calls import Signature
from ddpnb.recording.findings import Diagnosis, Finding, FindingType
from ddpnb.render.explanation import Explanation
from ddpnb.rules.finding_types import type_of
from tests.reports.manglings import FAULTS, plain

RDZV = "Error initializing torch.distributed using env:// rendezvous: environment variable WORLD_SIZE expected, but not set"
TIMED_OUT = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete"
LOG = f"""epoch 1
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line 9, in <module>
[rank1]:     dist.init_process_group("gloo")
[rank1]: ValueError: {RDZV}
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 30, in <module>
[rank0]:     dist.all_reduce(x)
[rank0]: RuntimeError: {TIMED_OUT}
"""


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


# -- codes


@pytest.mark.parametrize("what", ["DDP301", "ddp301", 301, "301", "collective-missing"])
def test_a_code(what):
    told = ddpnb.explain(what)
    assert isinstance(told, Explanation)
    assert told
    assert told.codes == ("DDP301",)
    assert str(told) == repr(told)
    assert str(told).startswith("DDP301 collective-missing")
    assert "How to fix" in str(told)
    assert "collective-missing" in told._repr_html_()


@pytest.mark.parametrize(
    ("what", "near"), [("DDP399", "DDP317"), (999, "DDP707"), ("ddp30x", "DDP301"), (-3, "All codes")]
)
def test_a_code_that_does_not_exist(what, near):
    with pytest.raises(UsageError, match="there is no finding") as caught:
        ddpnb.explain(what)
    assert near in str(caught.value)


@pytest.mark.parametrize("what", [None, 3.5, True, b"DDP301", ["DDP301"], object()])
def test_what_cannot_be_explained(what):
    with pytest.raises(UsageError, match="cannot explain a"):
        ddpnb.explain(what)


# -- exceptions


def test_an_exception():
    told = ddpnb.explain(raised(ValueError(RDZV)))
    assert told.codes == ("DDP101",)
    (finding,) = told.findings
    assert "WORLD_SIZE" in finding.summary
    assert "torchrun" in finding.remedy
    shown = str(told)
    assert shown.startswith("The environment variable WORLD_SIZE is not set.  [DDP101 bad-environment]\n  Fix: ")
    assert "Fix: " in shown
    assert shown.index("Fix: ") < shown.index("Symptom")


def test_the_cause_of_an_exception():
    error = RuntimeError("could not start")
    error.__cause__ = raised(ValueError(RDZV))
    assert ddpnb.explain(raised(error)).codes == ("DDP101",)


def test_an_exception_that_nobody_raised():
    assert ddpnb.explain(ValueError(RDZV)).codes == ("DDP101",)


@pytest.mark.parametrize(
    "error", [KeyError("loss"), ZeroDivisionError("division by zero"), ValueError(""), SystemExit(2)]
)
def test_an_exception_of_the_users_own(error):
    told = ddpnb.explain(raised(error))
    assert not told
    assert told.codes == ()
    assert "No distributed-training error is recognised" in str(told)
    assert "ddpnb run" in told._repr_html_()


def fence(*signatures: Signature) -> CollectiveMismatch:
    """As the door raises it."""
    calls = "; ".join(f"rank {rank} called {one} at train.py:{rank}" for rank, one in enumerate(signatures))
    return CollectiveMismatch(
        f"collective mismatch at seq 7, group [0, 1]: {calls}", "All ranks must make the same call."
    )


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (Signature("broadcast", ((4,),), ("float32",), root=0), "DDP302"),
        (Signature("all_reduce", ((6,),), ("float32",), "sum"), "DDP303"),
        (Signature("all_reduce", ((4,),), ("float64",), "sum"), "DDP304"),
        (Signature("all_reduce", ((2, 2),), ("float32",), "max"), "DDP305"),
    ],
)
def test_a_stop_of_the_fence(other, code):
    told = ddpnb.explain(raised(fence(Signature("all_reduce", ((4,),), ("float32",), "sum"), other)))
    assert told.codes == (code,)
    assert "mismatch at seq 7" in told.findings[0].summary


# -- texts


def test_a_log():
    told = ddpnb.explain(LOG)
    assert set(told.codes) == {"DDP101", "DDP301"}
    assert len(told.findings) == len(told.pages) == 2
    assert [page.code for page in told.pages] == [finding.code for finding in told.findings]


def test_a_file(tmp_path):
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\xfe\x00" + LOG.encode())
    assert set(ddpnb.explain(log).codes) == {"DDP101", "DDP301"}


@pytest.mark.parametrize("name", ["nowhere.log", "."])
def test_a_file_that_cannot_be_read(tmp_path, name):
    with pytest.raises(UsageError, match="cannot read|empty folder"):
        ddpnb.explain(tmp_path / name)


def test_of_a_large_file_the_end_is_read(tmp_path):
    log = tmp_path / "large.log"
    with open(log, "wb") as file:
        file.seek(40 << 20)  # a hole
        file.write(b"\n" + LOG.encode())
    assert set(ddpnb.explain(log).codes) == {"DDP101"}  # the time-out follows from it


def test_a_log_is_explained_as_it_is_diagnosed(tmp_path):
    """One paragraph for all ranks, not one for each line of the watchdog."""
    log = tmp_path / "train.log"
    fault = next(one for one in FAULTS if one.name == "operations")
    log.write_text("\n".join(plain(fault.lines)))
    told = ddpnb.explain(log)
    assert told.findings == ddpnb.diagnose(ddpnb.load(log)).errors
    assert (told.codes, [page.code for page in told.pages]) == ((fault.code,), [fault.code])


def test_it_is_said_where_a_part_of_a_log_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("ddpnb.reports.encodings._MOST_KEPT", 1000)
    log = tmp_path / "train.log"
    log.write_text(
        f"{'x' * 4000}\n" * 2200
        + f"{'y' * 100_000}ValueError: x\n" * 10
        + f"{'x' * 4000}\n" * 5000
        + "\n".join(plain(FAULTS[0].lines))
    )
    told = ddpnb.explain(log)
    assert told.codes == ("DDP301",)
    assert "What the middle of" in told.note


def test_a_lost_connection_is_a_secondary_failure():
    told = ddpnb.explain("RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3466.")
    assert told.findings == ()
    assert "secondary failure" in told.note
    assert told.codes == ("DDP311",)


def test_a_few_words_are_looked_for():
    told = ddpnb.explain("gradient accumulation")
    assert told.codes == ("DDP408",)
    assert "DDP409 scaling-differs" in told.note


@pytest.mark.parametrize("what", ["", "   ", "\n", "zebra", "ValueError: the hang of a barrier", "hello " * 1000])
def test_a_text_of_something_else(what):
    told = ddpnb.explain(what)
    assert not told
    assert str(told)


def test_many_findings_show_a_few_pages_and_name_the_rest():
    errors = [
        RDZV,
        TIMED_OUT,
        "DataLoader worker (pid 7) is killed by signal: Killed.",
        "No backend type associated with device type cpu",
        "CUDA error: invalid device ordinal",
    ]
    told = ddpnb.explain("".join(f"Traceback (most recent call last):\nRuntimeError: {error}\n" for error in errors))
    assert len(told.findings) == 5
    assert len(told.pages) == 3
    assert f"More pages: ddpnb explain {told.findings[3].code} {told.findings[4].code}" in " ".join(str(told).split())


def test_parameters_are_named():
    message = (
        "DDP expects same model across all ranks, but Rank 0 has 4 params, while rank 1 has inconsistent 6 params."
    )
    assert ddpnb.explain(raised(RuntimeError(message))).codes == ("DDP403",)
    keys = 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight", "b.weight". \n\tUnexpected key(s) in state_dict: "c.weight". '
    shown = str(ddpnb.explain(raised(RuntimeError(keys))))
    assert "a.weight" in shown
    assert "b.weight" in shown


# -- findings


def test_a_finding_and_a_diagnosis():
    finding = Finding(type_of("DDP502"), "The same order.", remedy="set_epoch")
    for what in (finding, Diagnosis("divergence", (finding,))):
        told = ddpnb.explain(what)
        assert told.findings == (finding,)
        assert told.codes == ("DDP502",)
    assert not ddpnb.explain(Diagnosis())
    assert ddpnb.explain(Finding(FindingType("DDP999", "unknown"), "Of a newer ddpnb.")).pages == ()


# -- how it shows


def test_it_is_wrapped_and_coloured_as_asked():
    told = ddpnb.explain(raised(ValueError(RDZV)))
    assert "\x1b" not in str(told)
    assert "\x1b" in told.text(colour=True)
    assert all(len(row) <= 60 for row in told.text(width=60).splitlines() if row.startswith("  -"))


def test_what_a_log_says_is_text_in_a_notebook():
    hostile = "environment variable <script>alert(1)</script>_RANK expected, but not set"
    told = ddpnb.explain(raised(RuntimeError(f"\x1b[2J<img src=x onerror=alert(1)> {TIMED_OUT} {hostile}")))
    shown = told._repr_html_()
    tags: set[str] = set()

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.add(tag)

    Parser().feed(shown)
    assert tags <= {"style", "div", "span", "p", "ul", "li", "pre", "code", "b", "h2", "svg", "path"}
    assert "\x1b" not in shown
    assert "\x1b" not in str(told)


# -- the name


def test_the_function_is_not_hidden_by_a_module():
    importlib.import_module("ddpnb.render.explanation")
    importlib.import_module("ddpnb.cli.explain")
    assert callable(ddpnb.explain)
    assert "explain" in dir(ddpnb)


def test_it_needs_neither_torch_nor_jupyter():
    code = "import sys, ddpnb; ddpnb.explain('DDP301'); ddpnb.explain('Timed out'); print([m for m in ('torch', 'numpy', 'IPython', 'ipyparallel') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
