"""Nothing that a rank has pickled is loaded in the launcher until a user reads the results."""

from __future__ import annotations

import os

import pytest

from ddpnb.ranks.engines.client import Reply

pytestmark = pytest.mark.world


class Bomb:
    """Pickled by a rank, it makes a file where it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Deadly(ValueError):
    def __reduce__(self):
        return os.mkdir, (self.args[0],)


def arrived(run):
    """Wait until the answers of all ranks are there, and what they published before."""
    for answer in run._monitor.answers.values():
        answer.wait(20)
        assert answer.ready()
        assert answer.result.wait_for_output(20)


def test_results_are_loaded_when_they_are_read(world, tmp_path):
    run = world.run(lambda folder: Bomb(f"{folder}/{os.environ['RANK']}"), str(tmp_path), stream=None).wait(30)
    arrived(run)
    assert run.outcome == "ok" and str(run) and run.endings and run.log(0) == ""
    assert list(tmp_path.iterdir()) == []
    assert run.results == [None] * 4  # what mkdir returned, here
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]


def test_an_exception_is_not_loaded(world, tmp_path):
    def fails(folder):
        raise Deadly(f"{folder}/{os.environ['RANK']}")

    run = world.run(fails, str(tmp_path), stream=None).wait(30)
    arrived(run)
    assert run.outcome == "crash" and run.results == [None] * 4
    assert list(tmp_path.iterdir()) == []


def test_what_a_rank_publishes_is_not_loaded(world, tmp_path):
    engines = [world._ranks.processes.engine_id(rank) for rank in range(world.size)]  # not those that were replaced
    sent = world._ranks.processes.client[engines].execute(
        "import os\n"
        "from ipyparallel.datapub import publish_data\n"
        "class Bomb:\n"
        f"    def __reduce__(self): return os.mkdir, ({str(tmp_path)!r} + '/' + os.environ['RANK'],)\n"
        "publish_data({'bomb': Bomb()})"
    )
    sent.get(30)
    assert sent.wait_for_output(30)  # what was published comes before
    assert list(tmp_path.iterdir()) == []


def test_an_answer_to_an_order_is_json(world, tmp_path):
    class Result:
        def get(self, _timeout):
            import pickle

            return [pickle.dumps(Bomb(str(tmp_path / "made")))]

    with pytest.raises(ValueError):
        Reply(Result()).get()
    assert list(tmp_path.iterdir()) == []
    assert world._ranks.processes.call(2, os.getpid).get(20) == world.pids()[2]
