"""A job that got a signal: what is passed on, and how long its end is waited for."""

from __future__ import annotations

import signal
import time

import pytest

from ddpnb.world import end_by_signal
from ddpnb.world.end_by_signal import EndBySignal
from tests.waiting import until


class Job:
    """One that lives as long as ``looks``."""

    run = None

    def __init__(self, looks=10_000, grace_s=60.0):
        self.looks, self.grace_s, self.got = looks, grace_s, []

    @property
    def lives(self):
        self.looks -= 1
        return self.looks > 0

    def forward(self, number):
        self.got.append(number)


@pytest.fixture
def ending():
    made = []

    def make(job, said=None):
        made.append(EndBySignal(lambda: job, (said if said is not None else []).append))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_it_is_waited_for_until_it_has_ended(ending):
    job = Job(looks=3)
    end = ending(job)
    assert end.begin(signal.SIGTERM, 1).outcome == "interrupted"
    end.wait()
    assert (job.got, job.looks) == ([signal.SIGTERM], 0)


def test_its_time_is_over(ending):
    said = []
    ending(Job(grace_s=0.0), said).wait()
    assert said == ["what has not ended after 0 s is killed"]


def test_a_second_interrupt_ends_the_wait(ending):
    job = Job()
    end = ending(job)
    end.further(signal.SIGINT)
    end.wait()
    assert job.looks > 9000 and job.got == []


def test_other_signals_are_passed_on(ending):
    job = Job()
    end = ending(job)
    end.further(signal.SIGUSR1)
    end.further(signal.SIGTERM)
    until(lambda: job.got == [signal.SIGUSR1, signal.SIGTERM])


def test_a_signal_that_comes_while_the_job_starts():
    job, started = Job(), []
    end = EndBySignal(lambda: started[0] if started else None, print)
    end.further(signal.SIGUSR1)
    time.sleep(0.1)
    started.append(job)
    until(lambda: job.got == [signal.SIGUSR1])
    end.close()


def test_nothing_runs_yet(ending):
    end = ending(None)
    end.further(signal.SIGUSR1)
    assert end.begin(signal.SIGINT, 1).outcome == "interrupted"
    end.wait()


@pytest.mark.parametrize(("given", "seconds"), [("", 30.0), ("7", 7.0), ("0", 0.0), ("-3", 0.0), ("soon", 30.0)])
def test_torchruns_own_variable(given, seconds, monkeypatch):
    monkeypatch.setenv(end_by_signal.GRACE, given)
    assert end_by_signal.grace_s() == seconds
