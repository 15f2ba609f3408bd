"""Where the ranks would meet: MASTER_ADDR and MASTER_PORT."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress

import psutil

from ddpnb.recording.checks import Check, judged
from ddpnb.world.host.network import Resolve, interfaces, resolve
from ddpnb.world.host.owners import owner
from ddpnb.world.host.variables import several_hosts

_DEFAULT = 29500
_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
_NARROW = 1000
_FIRST = ("RANK", "SLURM_PROCID")  # 0: this process would hold the store


def checks(variables: Mapping[str, str]) -> list[Check]:
    """Check the address and the port of the store."""
    mine = {address for one in interfaces() for address in one.addresses}
    here, check = master_address(variables, mine, resolve)
    return [check, master_port(variables, ephemeral(), here=here)]


def master_address(variables: Mapping[str, str], mine: set[str], resolver: Resolve) -> tuple[bool, Check]:
    """Whether the store is on this machine, and the check."""
    name = variables.get("MASTER_ADDR", "")
    if not name:
        told = "not set; torchrun and ddpnb set it (on one machine 127.0.0.1 or the host name)"
        return True, judged("MASTER_ADDR", told, section="network")
    addresses, trouble = resolver(name)
    details = {"name": name, "addresses": addresses}
    if not addresses:
        told, todo = (
            f"{name} does not resolve ({trouble})",
            "Correct it, or use the address: getent hosts NAME on rank 0.",
        )
        return False, judged("MASTER_ADDR", told, todo, "DDP104", "network", details)
    loops = all(ipaddress.ip_address(one).is_loopback for one in addresses)
    here = loops or bool(mine & {*addresses})
    shown = name if addresses == [name] else f"{name} resolves to {', '.join(addresses[:4])}"
    told, todo = f"{shown}: {'this machine' if here else 'another machine; whether it can be reached is not tried'}", ""
    if loops and several_hosts(variables):
        told, todo = f"{shown}: each machine means itself", "Set it to the address of the machine of rank 0."
    elif not here and any(variables.get(one) == "0" for one in _FIRST):
        told, todo = f"{shown}: not this machine, but rank 0 is here", "Set it to an address of this machine."
    return here, judged("MASTER_ADDR", told, todo, "DDP104", "network", details)


def master_port(variables: Mapping[str, str], dynamic: tuple[int, int] | None, *, here: bool) -> Check:
    """Whether the port is free; ``dynamic``: the range of ports that the kernel gives away."""
    text = variables.get("MASTER_PORT", "")
    if text and not (text.isdecimal() and 0 < int(text) < 1 << 16):
        told, todo = f"{text} is not the number of a port", "Set a number from 1024 to 65535."
        return judged("MASTER_PORT", told, todo, "DDP101", "network")
    port = int(text or _DEFAULT)
    who = listeners(port) if here else []
    details = {"port": port, "listeners": who, "ephemeral": list(dynamic or ())}
    kernel = f"the kernel gives away {dynamic[0]} to {dynamic[1]}" if dynamic else ""
    if who:
        told = f"{port}{' (the default)' * (not text)} is taken by {', '.join(who)}"
        todo = "Choose another (MASTER_PORT, torchrun --master-port), or end that process."
        return judged("MASTER_PORT", told, todo, "DDP105", "network", details)
    if dynamic and dynamic[1] - dynamic[0] < _NARROW:
        todo = "sysctl net.ipv4.ip_local_port_range='32768 60999': each pair of ranks needs ports."
        return judged("MASTER_PORT", f"{kernel}: few", todo, "DDP705", "network", details)
    told = f"{port}{' (the default)' * (not text)} is free" if here else f"{port} on another machine"
    if text and dynamic and dynamic[0] <= port <= dynamic[1]:
        told += f", but {kernel}: it may be taken by chance"
    told += "; a firewall between machines cannot be seen"
    return judged("MASTER_PORT", told, section="network", details=details)


def ephemeral() -> tuple[int, int] | None:
    """The range of ports that the kernel gives to those who ask for none."""
    with suppress(OSError, ValueError):
        with open(_RANGE) as file:
            low, high = map(int, file.read().split())
        return low, high
    return None


def listeners(port: int) -> list[str]:
    """Who listens on a port of this machine; the names of users are left out."""
    try:
        found = [
            one
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port
        ]
    except (psutil.Error, OSError):
        return [] if _free(port) else ["a process"]
    return list(dict.fromkeys(owner(one.pid) for one in found))


def _free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True
