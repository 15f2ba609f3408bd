"""Names of machines and users, homes and addresses get placeholders; what tells nothing of anybody stays."""

from __future__ import annotations

import pytest

from ddpnb.render.identities import Identities


def masks(text):
    return Identities(["node-3", "gpu[17-20],login"], ["ann", "bo"], ["/home/ann", "/root"]).mask(text)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("on node-3", "on host1"),
        ("on NODE-3.cluster.example:29500", "on host1:29500"),
        ("gpu17 to gpu18, gpu17 again", "host1 to host2, host1 again"),
        ("[login]:4711", "[host1]:4711"),
        ("user=ann, /tmp/torchinductor_ann/x", "user=user1, /tmp/torchinductor_user1/x"),
        ("/home/ann/env/bin/python: not found", "~/env/bin/python: not found"),
        ('"/home/ann"', '"~"'),
        ("PATH=/root/bin:/home/ann/bin", "PATH=~/bin:~/bin"),
        ("file:///home/ann/x", "file:///home/user1/x"),
        ("/home/carl/x and carl", "/home/user1/x and user1"),
        ("/Users/dora/x", "/Users/user1/x"),
        ("from 192.0.2.7 to 192.0.2.8:80 and 192.0.2.7.", "from address1 to address2:80 and address1."),
        ("tcp://[2001:db8::7]:29500, 2001:DB8:0::7", "tcp://[address1]:29500, address1"),
        ("::ffff:192.0.2.7 is 192.0.2.7", "address1 is address1"),
        ("fe80::1%eth0", "address1%eth0"),
        ("link/ether 02:42:ac:11:00:02", "link/ether mac1"),
    ],
)
def test_what_is_masked(text, masked):
    assert masks(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1, 127.0.1.1, ::1, 0.0.0.0 and localhost",
        "torch 2.13.0, cuDNN 9.10.2, libnccl.so.2.27.5.1, v1.2.3.4",
        "[14:03:22.123] c10d::allreduce_ of at::native and std::abort",
        "PCI 0000:1b:00.0 at 00000000:1B:00.0",
        "planning a channel, annotated bodies, nodes-33, node-33",
        "/root-of-all/x, /rooted, ./home",
        "GPU-8b7f0d1c-3a52-4e0c-9d7e-0123456789ab",
        "999.1.2.3",
    ],
)
def test_what_stays(text):
    assert masks(text) == text


def test_the_same_name_in_all_texts():
    known = Identities(["node-3"], ["ann"], [])
    assert known.mask("node-3 192.0.2.7") == "host1 address1"
    assert known.mask("192.0.2.9 192.0.2.7 node-3") == "address2 address1 host1"


def test_users_are_learned_before_the_first_text_is_masked():
    known = Identities()
    known.learn("/home/carl/x")
    assert known.mask("carl") == "user1"


def test_json():
    known = Identities(["host"], ["ann"], ["/home/ann"])
    value = {
        "host": [{"name": "host", "free": {"/home/ann/x": 1}}],
        "n": 2,
        "ok": True,
        "none": None,
        "at": ("192.0.2.7",),
    }
    found = {"host": [{"name": "host1", "free": {"~/x": 1}}], "n": 2, "ok": True, "none": None, "at": ["address1"]}
    assert known.masked(value) == found


@pytest.mark.parametrize("name", ["root", "localhost", "", "a"])
def test_names_that_tell_nothing(name):
    text = "a root of localhost"
    assert Identities([name] if name != "a" else [], [name], ["/", ""]).mask(text) == text
