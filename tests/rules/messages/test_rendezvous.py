from __future__ import annotations

import pytest

from ddpnb.rules.messages.explain import explain, explain_text
from tests.rules.messages.told import inside, told

IN_USE = (
    "The server socket has failed to listen on any local network address. port: {}, useIpv6: false, code: -98, "
    "name: EADDRINUSE, message: address already in use"
)
OLD_IN_USE = (
    "The server socket has failed to listen on any local network address. The server socket has failed to bind to "
    "[::]:29500 (errno: 98 - Address already in use). The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - "
    "Address already in use)."
)
BARRIER = (
    "Timed out initializing process group in store based barrier on rank{} 0, for key: store_based_barrier_key:1 "
    "(world_size={}, {}={}, timeout=0:30:00)"
)


def test_too_few_clients_are_counted_and_nobody_here_is_blamed():
    found = told("Timed out after 9 seconds waiting for clients. 2/3 clients joined.", "DistStoreError")
    assert (found.code, found.culprits) == ("DDP102", ())
    assert "3 ranks: 2 joined within 9 s" in found.summary


def test_more_clients_than_ranks_are_left_from_elsewhere():
    found = told("Timed out after 31 seconds waiting for clients. 3/2 clients joined.", "RuntimeError")
    assert found.code == "DDP105"


@pytest.mark.parametrize(
    ("colon", "world", "word", "came", "code"),
    [
        ("", 2, "num_workers_joined", 1, "DDP102"),
        (":", 2, "worker_count", 1, "DDP102"),
        (":", 2, "worker_count", 4, "DDP105"),
    ],
)
def test_the_barrier_of_the_store_counts_too(colon, world, word, came, code):
    assert told(BARRIER.format(colon, world, word, came), "DistStoreError").code == code


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ("/default_pg/0//cpu//0/2", (2,)),
        ("/default_pg/0//cuda//0/1, /default_pg/0//cuda//0/3", (1, 3)),
        ("/worker/attempt_0//default_pg/0//cpu//0/7", (7,)),
    ],
)
def test_a_key_of_the_store_names_the_rank_that_did_not_come(keys, missing):
    found = told(f"wait timeout after 8000ms, keys: {keys}", "DistStoreError")
    assert (found.code, found.missing, found.culprits) == ("DDP102", missing, ())
    assert "within 8 s" in found.summary


def test_the_frames_of_cpp_behind_the_keys_are_not_read():
    trace = (
        "\nException raised from doWait at TCPStore.cpp:578 (most recent call first):\nframe #0: c10::Error + 0x9d, 44"
    )
    found = told(f"wait timeout after 1800000ms, keys: /default_pg/0//cpu//0/1{trace}", "DistStoreError")
    assert found.missing == (1,)
    assert "within 30 min" in found.summary


def test_a_key_of_a_sub_group_names_a_place_in_it_not_a_rank():
    found = told("wait timeout after 8000ms, keys: /default_pg/0//1//cpu//0/1", "DistStoreError")
    assert (found.code, found.missing) == ("DDP108", ())
    assert "index 1" in found.summary


def test_a_key_of_the_users_own():
    found = told("wait timeout after 2000ms, keys: /default_pg/0//k, /default_pg/0//l", "DistStoreError")
    assert found.code == "DDP313"
    assert "/default_pg/0//k" in found.summary


@pytest.mark.parametrize(
    "message",
    [
        "[1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by key '0', but "
        "store->get('0') got error: Timeout waiting for key: default_pg/0/0 after 1800000 ms",
        "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
        "store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        "[2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but "
        "store->get('0') got error: Broken pipe",
    ],
)
def test_nccl_waits_for_the_rank_that_makes_the_id(message):
    found = told(message, "DistBackendError")
    assert (found.code, found.missing) == ("DDP102", (0,))
    assert "Timed out" not in found.summary


def test_a_process_group_that_is_not_there():
    message = "Default process group has not been initialized, please make sure to call init_process_group."
    assert told(message, "ValueError").code == told(message, "RuntimeError").code == "DDP102"


@pytest.mark.parametrize("message", ["Mesh should not be bigger than default world size 1, but found 4 ranks!"])
def test_a_mesh_that_is_larger_than_the_world(message):
    assert "4 ranks" in told(message).summary


def test_nodes_that_do_not_come():
    assert told("", "RendezvousTimeoutError").code == "DDP102"


@pytest.mark.parametrize(
    "message",
    [
        "The client socket has timed out after 60000ms while trying to connect to (10.0.0.7, 29500).",
        "The client socket has failed to connect to any network address of (10.0.0.7, 29500).",
    ],
)
def test_an_address_at_which_nobody_answers(message):
    found = told(message, "DistNetworkError")
    assert found.code == "DDP104"
    assert "10.0.0.7:29500" in found.summary
    assert not found.evidence


def test_the_machine_itself_is_remarked_on():
    found = told(
        "The client socket has timed out after 8000ms while trying to connect to (127.0.0.1, 1).", "DistNetworkError"
    )
    assert "this machine itself" in found.evidence[0]


def test_a_launcher_without_its_rendezvous():
    message = "The connection to the C10d store has failed. See inner exception for details."
    assert told(message, "RendezvousConnectionError").code == "DDP104"


def test_a_name_without_an_address_stands_in_the_log_only():
    log = (
        "[W1121 10:06:24.020 socket.cpp:764] [c10d] The IPv6 network addresses of (gpu-07.invalid, 39581) cannot be retrieved "
        "(gai error: -2 - Name or service not known).\n"
    )
    (found,) = explain_text(log * 3)
    assert found.code == "DDP110"
    assert "gpu-07.invalid" in found.summary
    assert "Name or service not known" in found.summary


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (
            "[enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to "
            "find address for: nope0",
            "nope0",
        ),
        (
            "[enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:80] ifa != nullptr. Unable to find interface for: "
            "[10.1.2.3]",
            "address 10.1.2.3 on",
        ),
    ],
)
def test_an_interface_that_is_not_there(message, name):
    found = told(message)
    assert found.code == "DDP110"
    assert name in found.summary


def test_addresses_that_cannot_be_reached():
    start = "Gloo connectFullMesh failed with [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.h:311] "
    found = told(start + "Connect timeout [none]")
    assert (found.code, found.culprits) == ("DDP110", ())
    assert explain(start + "Connection closed by peer [127.0.0.1]:4242", "RuntimeError") is None


@pytest.mark.parametrize(("message", "port"), [(IN_USE.format(41177), "41177"), (OLD_IN_USE, "29500")])
def test_a_port_in_use(message, port):
    found = told(message, "DistNetworkError")
    assert found.code == "DDP105"
    assert f"Port {port} " in found.summary


def test_the_oldest_words_for_a_port_in_use():
    assert told("Address already in use", "RuntimeError").code == "DDP105"


def test_a_port_of_the_users_own_server_is_not_ours():
    assert explain("[Errno 98] Address already in use", "OSError") is None
    store = inside("torch/distributed/rendezvous.py", "_create_c10d_store")
    assert told("[Errno 98] Address already in use", "OSError", store).code == "DDP105"


def test_started_twice():
    found = told("trying to initialize the default process group twice!", "ValueError")
    assert found.code == "DDP105"
    assert "destroy_process_group" in found.remedy
    assert told("", "RendezvousClosedError").code == "DDP105"
