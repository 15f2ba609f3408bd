"""Every public function and method answers a wrong value with an error of ours, never with one of our internals."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

import ddpnb
from ddpnb.errors import DdpnbError
from ddpnb.recording import phrases
from ddpnb.recording.holds import Hold
from ddpnb.render.views import startup_waits


class Hostile:
    """An object of the user's that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no")


NAN, INF = float("nan"), float("inf")
VALUES = [
    None,
    5,
    10**5000,
    -1,
    0,
    1.5,
    NAN,
    INF,
    "x",
    "",
    "a\0b",
    b"x",
    [],
    [None],
    {},
    True,
    object(),
    Hostile(),
    Path("a\0b"),
]


class Wrong(list):
    """Values that must be refused: to take one in silence is a failure."""


def refuse_or_work(call, *, values=VALUES):
    """Each value is taken, or refused with an error that says what is wrong in a line that can be printed."""
    for value in values:
        try:
            call(value)
            if isinstance(values, Wrong):
                raise AssertionError(f"a {type(value).__name__} was taken")
        except AssertionError:
            raise
        except DdpnbError as error:
            if not 0 < len(str(error)) < 2000:
                raise AssertionError(f"the message has {len(str(error))} characters") from error
        except Exception as error:
            raise AssertionError(f"a {type(value).__name__}: {type(error).__name__}") from error


# -- without ranks

WITHOUT_RANKS = {
    "diagnose": ddpnb.diagnose,
    "diagnose patience": lambda value: ddpnb.diagnose(_recording(), value),
    "explain": ddpnb.explain,
    "show": ddpnb.show,
    "Fault": ddpnb.Fault,
    **{
        f"Fault {name}": lambda value, name=name: ddpnb.Fault("skip", **{name: value})
        for name in ("op", "seq", "site", "group", "step", "probability", "seed", "times", "values")
    },
    "Hold seq": lambda value: Hold(seq=value),
    "Hold when": lambda value: Hold(when=value),
    "save": lambda value: ddpnb.Diagnosis().save(value),
}


def _recording():
    from tests.rules.recordings import Rank, record

    return record(Rank(0), Rank(1))


@pytest.mark.parametrize("name", WITHOUT_RANKS)
def test_without_ranks(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuse_or_work(WITHOUT_RANKS[name])


#: argument of launch: values that are refused before anything is started
LAUNCH = {
    "n": [None, 0, -1, 1.5, NAN, INF, "x", b"x", [], True, object(), Hostile()],
    "backend": [5, 1.5, b"gloo", ["gloo"], {}, True, object(), Hostile(), "x"],
    "devices": [5, "x", b"x", 1.5, [None], [-1], ["0"], [1.5], object(), Hostile()],
    "fence": [None, 5, b"raise", [], {}, object(), "x", Hostile()],
    "patience": [None, 0, -1, NAN, "x", b"x", [], True, object(), Hostile()],
    "port": [0, -1, 1.5, NAN, "x", b"x", [], True, 99999999, 10**5000, object(), Hostile()],
    "timeout": [None, 0, -1, NAN, INF, 10**5000, "x", b"x", [], True, object(), Hostile()],
    "fork": [0, 1, 1.5, "x", "", b"1", [], object(), Hostile()],
}


@pytest.mark.parametrize("name", LAUNCH)
def test_of_launch_and_doctor(name, monkeypatch):
    monkeypatch.setattr("ddpnb.world.launching.Early", None)  # nothing may be started
    for value in LAUNCH[name]:
        with pytest.raises(DdpnbError):
            ddpnb.launch(**{"n": 2, "quiet": True, name: value})
        if name in ("n", "backend", "timeout"):
            with pytest.raises(DdpnbError):
                ddpnb.doctor(**{"quiet": True, name: value})


# -- on ranks

NUMBERLESS = Wrong(value for value in VALUES if value not in (0, 5, 1.5, None))  # what no time-out can be


def on_ranks(world):
    startup = world.init()
    yield "step of start-up", startup.step, VALUES[2:]
    yield "wait of start-up", lambda value: startup.step(0, value), NUMBERLESS
    yield "run of start-up", startup.run, [value for value in VALUES if value is not None]
    yield "timeout of start-up", lambda value: startup.run(timeout=value), NUMBERLESS
    yield "facts", startup.facts, VALUES
    yield "log of start-up", startup.log, VALUES
    yield "init", world.init, NUMBERLESS
    yield "rebuild", world.rebuild, NUMBERLESS
    yield "release", world.release, VALUES
    yield "restart", world.restart, [value for value in VALUES if value not in (None, 0)]
    yield "timeout of restart", lambda value: world.restart([], value), VALUES
    yield "hold", world.hold, VALUES
    for name in ("ranks", "seq", "site", "group", "when"):
        yield f"{name} of hold", lambda value, name=name: world.hold(**{name: value}), VALUES
    yield "step", lambda value: world.step(value, timeout=0.1), VALUES
    yield "ranks of step", lambda value: world.step(ranks=value, timeout=0.1), VALUES
    yield "wait of step", lambda value: world.step(timeout=value), NUMBERLESS
    yield "resume", world.resume, VALUES
    yield "wait of hold", world.hold("all_reduce").wait, NUMBERLESS
    yield "inject", world.inject, VALUES
    for name in ("ranks", "op", "seq", "site", "group", "step", "probability", "seed", "times", "nope"):
        yield f"{name} of inject", lambda value, name=name: world.inject("skip", **{name: value}), VALUES
    for kind, name in (("delay", "seconds"), ("other dtype", "dtype"), ("variable", "value"), ("kill", "signal")):
        yield f"{name} of {kind}", lambda value, kind=kind, name=name: world.inject(kind, **{name: value}), VALUES
    yield "heal", world.heal, VALUES
    yield "evaluate", world.evaluate, VALUES
    yield "ranks of evaluate", lambda value: world.evaluate("1", ranks=value), VALUES
    yield "frame of evaluate", lambda value: world.evaluate("1", frame=value), VALUES
    yield "timeout of evaluate", lambda value: world.evaluate("1", timeout=value), VALUES
    yield "diff", world.diff, VALUES
    yield "compare", world.compare, VALUES[:6]
    yield "lines", world.lines, VALUES
    yield "window of lines", lambda value: world.lines(window=value), VALUES
    world.heal()
    world.resume()
    yield "run", world.run, VALUES
    for name in ("log_dir", "stream", "fence", "patience"):
        refused = [value for value in VALUES if isinstance(value, (float, bytes, list, dict, object)) and value]
        wrong = [value for value in refused if not isinstance(value, (str, Path)) or "\0" in str(value)]
        wrong = [value for value in wrong if not (name == "stream" and value is True)]
        wrong = Wrong(value for value in wrong if not (name == "patience" and isinstance(value, (int, float))))
        yield f"{name} of run", lambda value, name=name: world.run(len, **{name: value}), wrong
    yield "execute", world.execute, [value for value in VALUES if not isinstance(value, str)]
    yield (
        "ranks of execute",
        lambda value: world.execute("1", ranks=value, stream=None),
        Wrong([-1, 1.5, "x", b"x", [None], True, Hostile()]),
    )
    yield (
        "name of execute",
        lambda value: world.execute("1", name=value),
        [value for value in VALUES if value is not None],
    )
    run = world.execute("1", stream=None)
    yield "wait", run.wait, NUMBERLESS
    run.wait(60)
    yield "log", run.log, VALUES


@pytest.mark.full
@pytest.mark.world
def test_on_ranks(world, tmp_path, monkeypatch):
    """One after the other, on the same ranks: they are not harmed, and run on."""
    monkeypatch.chdir(tmp_path)
    failed = []
    with contextlib.redirect_stdout(io.StringIO()):
        for name, call, values in on_ranks(world):
            try:
                refuse_or_work(call, values=values)
            except AssertionError as error:
                failed.append(f"{name}: {error}: {error.__cause__!r:.200}")
    assert failed == []
    world.release()
    assert world.run(_healthy, stream=None).wait(60).outcome == "ok"


def _healthy():
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))


# -- one and several


def test_several_ranks_are_spoken_of_as_several():
    from ddpnb.recording.ending import Ending
    from ddpnb.recording.recording import RankRecord
    from ddpnb.rules.hangs.endings import _what

    killed = RankRecord(1, ending=Ending("died", -9))
    for ranks, said in (((1,), "rank 1 was killed (SIGKILL)"), ((1, 2), "ranks 1 and 2 were killed (SIGKILL)")):
        assert f"{phrases.ranks(ranks)} {_what(killed, phrases.verb(ranks, 'was', 'were'))}" == said
    assert startup_waits._plural("is dead") == "are dead"
    assert (
        startup_waits._plural("waits in the store for 2 of 4 ranks: 2 and 3")
        == "wait in the store for 2 of 4 ranks: 2 and 3"
    )
    assert startup_waits._plural("failed at store: x") == "failed at store: x"
    assert startup_waits.sentence is not None
