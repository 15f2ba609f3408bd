from __future__ import annotations

import pytest

from ddpnb.rules.catalogue import codes, looks_like_code, nearest, resolve, search


@pytest.mark.parametrize(
    "words", ["DDP301", "ddp301", "Ddp-301", "ddp 301", "301", 301, " 301 ", "collective-missing", "Collective_Missing"]
)
def test_a_code_in_many_forms(words):
    assert resolve(words) == "DDP301"


@pytest.mark.parametrize("words", ["DDP399", "999", 1, 3010, "", "DDP", "collective", "barrier hang", "301 302"])
def test_what_is_no_code(words):
    assert resolve(words) is None


@pytest.mark.parametrize(("words", "does"), [
    ("DDP999", True), ("12", True), ("ddp30x", True), ("ddp 999", True), ("hang", False), ("ddp hang", False), ("", False),
])  # fmt: skip
def test_what_was_meant_as_a_code(words, does):
    assert looks_like_code(words) is does


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("DDP399", "DDP319"),
        ("209", "DDP208"),
        ("999", "DDP708"),
        ("colective-missing", "DDP301"),
        ("stragler", "DDP315"),
    ],
)
def test_the_nearest_code(words, first):
    assert nearest(words)[0] == first
    assert len(nearest(words)) <= 3


def test_nothing_is_near_to_nonsense():
    assert nearest("qqqqqqq") == ()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("barrier hang", "DDP301"),
        ("hang", "DDP301"),
        ("unused parameters", "DDP401"),
        ("find_unused_parameters", "DDP402"),
        ("nan loss", "DDP414"),
        ("CUDA out of memory", "DDP205"),
        ("address already in use", "DDP105"),
        ("NCCL watchdog", "DDP301"),
        ("connection closed by peer", "DDP311"),
        ("evaluate on rank 0", "DDP411"),
        ("shuffle every epoch", "DDP502"),
        ("missing keys", "DDP602"),
        ("wandb", "DDP702"),
        ("monitored_barrier", "DDP301"),
        ("gradient accumulation", "DDP408"),
        ("invalid device ordinal", "DDP208"),
        ("dataloader worker killed", "DDP505"),
        ("different learning rates", "DDP410"),
        ("broadcast_buffers", "DDP406"),
    ],
)
def test_words_find_their_page(words, code):
    assert search(words)[0].code == code


def test_words_that_no_page_has():
    assert search("zebra") == ()
    assert search("") == ()
    assert search("the of and") == ()


def test_pages_with_more_of_the_words_come_first():
    found = [page.code for page in search("dataloader worker fork", len(codes()))]
    assert found.index("DDP109") < found.index("DDP504")


def test_of_many_a_few_are_given():
    assert len(search("rank")) == 8
    assert len(search("rank", 3)) == 3
    assert len(search("rank " * 100_000)) == 8
