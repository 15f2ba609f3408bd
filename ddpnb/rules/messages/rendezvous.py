"""DDP102-105, 110: the rendezvous: the store, its address, its keys."""

from __future__ import annotations

import re

from ddpnb.model import phrases
from ddpnb.rules.messages.explained import Explained, Raised, seconds

_CLIENTS = re.compile(r"Timed out after (\d{1,12}) seconds waiting for clients\. (\d{1,9})/(\d{1,9}) clients joined")
_BARRIER = re.compile(
    r"store based barrier on rank:? (\d{1,9}), for key: ([^\s]{1,200}) "
    r"\(world_size=(\d{1,9}), (?:num_workers_joined|worker_count)=(\d{1,9})"
)
_MESH = re.compile(r"Mesh should not be bigger than default world size,? ?(\d{0,9}),? but found (\d{1,9}) ranks")
_NOT_MADE = "Default process group has not been initialized"


def incomplete(raised: Raised) -> Explained | None:
    """DDP102, and DDP105 where more processes joined than the world size."""
    text = raised.text
    if match := _CLIENTS.search(text):
        return _joined(int(match[2]), int(match[3]), f"within {match[1]} s")
    if match := _BARRIER.search(text):
        return _joined(int(match[4]), int(match[3]), f"at the barrier {match[2]}")
    if raised.exception == "RendezvousTimeoutError":
        return Explained(
            "DDP102",
            "The launcher timed out waiting for the other nodes: too few of them joined.",
            "Start torchrun on every node, with the same --nnodes, --rdzv-id and --rdzv-endpoint.",
            culprits=(),
        )
    if match := _MESH.search(text):
        return Explained(
            "DDP102",
            f"The device mesh has {match[2]} ranks, but the world size is {match[1] or 'smaller'}.",
            "Compute the mesh shape from dist.get_world_size(), or launch as many ranks as it has.",
        )
    if _NOT_MADE in text:
        return Explained(
            "DDP102",
            "The process group is used before it is initialised, or after it is destroyed.",
            "Call init_process_group on every rank before the first use of torch.distributed, and destroy_process_group last.",
            ("init_process_group was not called on this rank, or destroy_process_group came first.",),
        )
    return None


def _joined(came: int, wanted: int, when: str) -> Explained:
    if came > wanted:
        return Explained(
            "DDP105",
            f"{came} processes joined a store created for {wanted}: another run uses it, or it has keys of an earlier run.",
            "Give each run its own MASTER_PORT (or a new file for file://), and stop what is left of the earlier run.",
        )
    return Explained(
        "DDP102",
        f"Timed out waiting for {wanted} ranks: {came} joined {when}.",
        "Launch WORLD_SIZE processes, and look at the first output lines of those that did not join.",
        (
            "The message is the same for a rank that exited before init_process_group and for two processes with one RANK.",
        ),
        culprits=(),
    )


_WAITED = re.compile(r"(?:[Ww]ait timeout after|Timeout waiting for key:?)\s?(.{0,2000})")
_MEMBER = re.compile(r"default_pg/0//(?:([^/\s]{1,60})//)?[a-z]{2,12}//\d{1,6}/(\d{1,9})$")
_UNIQUE_ID = re.compile(r"retr(?:ie|ei)ving ncclUniqueId from \[(\d{1,9})\]")


def store(raised: Raised) -> Explained | None:
    """Time-outs in the store, identified by their keys: each rank stores its address under its own number."""
    if match := _UNIQUE_ID.search(raised.text):
        return _without_id(int(match[1]))
    match = _WAITED.search(raised.text)
    if match is None:
        return None
    after = re.search(r"(\d{1,15}) ?ms", match[1])
    waited = f" within {seconds(after[1])}" if after else ""
    listed = match[1].partition("keys:")[2] or match[1].partition(" after")[0]
    keys = [key.strip() for key in listed.strip().split(",") if key.strip()][:64]
    members = [_MEMBER.search(key) for key in keys]
    named = [member for member in members if member is not None]
    absent = tuple(sorted({int(member[2]) for member in named if member[1] is None}))
    if absent:
        return _absent(absent, "in init_process_group", waited)
    if named:
        places = sorted({int(member[2]) for member in named})
        return Explained(
            "DDP108",
            f"Timed out creating a group with new_group: the member at index {phrases.ranks(places).partition(' ')[2]} of "
            f"the group did not join it{waited}.",
            "Call new_group on every rank, members or not, with the same lists in the same order.",
            (f"The missing key is {keys[0]}.",),
            culprits=(),
        )
    if keys:
        return Explained(
            "DDP313",
            f"Timed out waiting for a store key that no rank set{waited}: {keys[0][:200]}.",
            "Look at the rank that should set it: it failed before, or uses a different name or prefix.",
            culprits=(),
        )
    return None


def _without_id(rank: int) -> Explained:
    return Explained(
        "DDP102",
        f"NCCL was not set up: the id that rank {rank} makes was not in the store, or the store could not be asked.",
        f"Look at what rank {rank} did: it exited or failed before, or did not make this call. If it did, look at the network.",
        culprits=(),
        missing=(rank,),
    )


def _absent(ranks: tuple[int, ...], where: str, waited: str) -> Explained:
    return Explained(
        "DDP102",
        f"Timed out {where} waiting for {phrases.ranks(ranks)}, which did not join{waited}.",
        f"Look at what {phrases.ranks(ranks)} did instead of joining.",
        (
            "They exited or failed before, have a wrong RANK, or use a different store address."
            if len(ranks) > 1
            else "It exited or failed before, has a wrong RANK, or uses a different store address.",
        ),
        culprits=(),
        missing=ranks,
    )


_CONNECT = re.compile(
    r"client socket has (?:timed out after (\d{1,12})(?:ms| seconds)?|failed to connect to any network address)"
    r"(?: while trying to connect to| of) \(([^,)]{1,200}), (\d{1,9})\)"
)
_UNRESOLVED = re.compile(
    r"addresses of \(([^,)]{1,200}), \d{1,9}\) cannot be retrieved \(gai error: -?\d{1,5} - ([^)]{1,100})\)"
)
_INTERFACE = re.compile(r"Unable to find (?:address|interface) for: ?\[?([^\s\]]{1,100})")


def address(raised: Raised) -> Explained | None:
    """DDP104, 110: the address at which the ranks look for each other."""
    text = raised.text
    if match := _UNRESOLVED.search(text):
        return Explained(
            "DDP110",
            f"The host name {match[1]} does not resolve: {match[2].strip()}.",
            "Set MASTER_ADDR to a name or an address that every node can resolve (getent hosts NAME).",
        )
    if match := _CONNECT.search(text):
        host, port = match[2].strip(), match[3]
        local = host in ("localhost", "::1") or host.startswith("127.")
        return Explained(
            "DDP104",
            f"No connection to {host}:{port}, the address of rank 0's store.",
            "Give every rank the same MASTER_ADDR and MASTER_PORT (those of rank 0's machine), and make sure that no firewall "
            "blocks them. If they are correct, rank 0 started too late or not at all.",
            (f"{host} is this machine itself: correct only if rank 0 runs here.",) if local else (),
        )
    if raised.exception == "RendezvousConnectionError" or "connection to the C10d store has failed" in text:
        return Explained(
            "DDP104",
            "The launcher cannot connect to the rendezvous endpoint.",
            "Pass the same --rdzv-endpoint to torchrun on every node: a host that all can reach, and a free port.",
        )
    if match := _INTERFACE.search(text):
        return Explained(
            "DDP110",
            f"There is no network interface or address {match[1]} on this machine.",
            "Set GLOO_SOCKET_IFNAME (NCCL_SOCKET_IFNAME for NCCL) to an interface that this machine has (ip -br addr), "
            "or leave it unset.",
        )
    if "no socket interface found" in text or "Unable to resolve hostname to a (local) address" in text:
        return Explained(
            "DDP110",
            "No network interface was found that the other ranks could reach.",
            "Name one: GLOO_SOCKET_IFNAME=eth0 (NCCL_SOCKET_IFNAME for NCCL), as ip -br addr lists them.",
        )
    if "Gloo connectFullMesh failed" in text and not re.search(r"by peer|[Bb]roken pipe", text):
        return Explained(
            "DDP110",
            "Found the addresses of the other ranks, but could not connect to one of them.",
            "If no rank failed: name the interface with GLOO_SOCKET_IFNAME on every node, and look for 127.0.1.1 in /etc/hosts.",
            ("Either that rank exited, or its host name resolves to an address that cannot be reached from here.",),
            culprits=(),
        )
    return None


_IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_IN_USE_PORT = re.compile(r"port: (\d{1,6})|(?:bind to|listen on) \S{1,100}:(\d{1,6})\b")


def stale(raised: Raised) -> Explained | None:
    """DDP105: leftovers of an earlier run or start."""
    text = raised.text
    if _IN_USE.search(text) and (
        "server socket has failed" in text
        or raised.exception in ("DistNetworkError", "DistStoreError")
        or (raised.exception == "RuntimeError" and text == "Address already in use")
        or raised.passes("torch/distributed/")
    ):
        match = _IN_USE_PORT.search(text)
        port = f"Port {match[1] or match[2]}" if match else "The port"
        return Explained(
            "DDP105",
            f"{port} is in use: by another run, by an earlier one that still runs, or by a second process with rank 0.",
            "Stop the process that holds it (ss -ltnp), give each run its own MASTER_PORT, or let torchrun choose a free one: "
            "torchrun --standalone. Your own server needs a different port.",
        )
    if "trying to initialize the default process group twice" in text:
        return Explained(
            "DDP105",
            "init_process_group was called a second time, while the first group still exists.",
            "Call it once; before calling it again: if dist.is_initialized(): dist.destroy_process_group().",
        )
    if raised.exception == "RendezvousClosedError":
        return Explained(
            "DDP105",
            "The rendezvous is closed: an earlier run with the same id closed it.",
            "Give this run another --rdzv-id.",
        )
    return None


RULES = (incomplete, store, address, stale)
