"""For which keys of a store a thread waits."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore

from ddpnb.recorder.channel.main_wait import main_wait
from ddpnb.recorder.collectives import store_waits
from ddpnb.recorder.collectives.store_waits import StoreWaits, awaited
from ddpnb.recorder.files.blackbox import BlackBox

SOON = timedelta(seconds=20)


@pytest.fixture
def hooks(tmp_path):
    made = StoreWaits(BlackBox(str(tmp_path / "rank0.box"), 0))
    made.put()
    yield made
    made.remove()


def seen_while(wait, store, keys):
    """What is known of the main thread while it waits for keys that another thread sets."""
    seen = []

    def look():
        until = time.monotonic() + 10
        while not awaited(threading.main_thread().ident) and time.monotonic() < until:
            time.sleep(0.01)
        seen.append(awaited(threading.main_thread().ident))
        for key in keys:
            store.set(key, "1")

    looker = threading.Thread(target=look)
    looker.start()
    wait()
    looker.join()
    return seen[0]


@pytest.mark.usefixtures("hooks")
@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (lambda store: store.wait(["a"]), "the key 'a' of the HashStore"),
        (lambda store: store.wait(["a", "b"], SOON), "the keys 'a' and 'b' of the HashStore"),
        (lambda store: PrefixStore("x", store).wait(["b"], SOON), "the key 'b' of the store"),
    ],
)
def test_the_keys_for_which_the_main_thread_waits(wait, words):
    store = HashStore()
    assert seen_while(lambda: wait(store), store, ("a", "b", "x/b")) == words
    assert awaited(threading.main_thread().ident) == ""


@pytest.mark.usefixtures("hooks")
def test_a_key_that_is_read(tmp_path):
    reads, writes = (FileStore(str(tmp_path / "store"), 2) for _ in range(2))
    found = []
    assert seen_while(lambda: found.append(reads.get("lr")), writes, ["lr"]) == "the key 'lr' of the FileStore"
    assert found == [b"1"]


@pytest.mark.usefixtures("hooks")
def test_a_wait_that_raises_is_over():
    store = HashStore()
    with pytest.raises(Exception, match="(?i)time.?out"):
        store.wait(["never"], timedelta(milliseconds=50))
    with pytest.raises(TypeError):
        store.wait(3)
    assert store_waits._waits == {}


def test_removed_hooks_leave_the_stores_as_they_were(hooks):
    assert "wait" in vars(HashStore)
    hooks.remove()
    assert "wait" not in vars(HashStore) and "get" not in vars(PrefixStore)


def test_a_thread_that_waits_for_nothing():
    assert awaited(threading.get_ident()) == awaited(None) == ""
    assert "key" not in main_wait().words
