"""Interfaces and names: which address gloo and NCCL would take, and what the host name resolves to.

Both are predictions by the steps of torch 2.13 and NCCL 2.27, as far as they are listed here; the libraries are not asked.
gloo: the interfaces of GLOO_SOCKET_IFNAME; else the first address of the host name to which a socket can be bound; else the
loopback. NCCL's sockets: the interfaces that are up, have an address of NCCL_SOCKET_FAMILY and match NCCL_SOCKET_IFNAME; without
that, the first of these patterns that any matches: ib*, others, docker*, lo, virbr*. Not looked at are NCCL_COMM_ID, files with
settings of NCCL, network plugins, and the devices of InfiniBand that carry the data. NCCL's part was not compared with a run on
GPUs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import psutil

from ddpnb.recording.checks import Check, judged
from ddpnb.world.host.variables import several_hosts

_NAME_S = 5.0  # that a name server may take
_CONNECT_S = 2.0
_SHOWN = 6
_SECTION = "network"
_check = partial(judged, code="DDP110", section=_SECTION)
Resolve = Callable[[str], tuple[list[str], str]]


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; ``addresses``: those of IPv4 first."""

    name: str
    up: bool
    addresses: tuple[str, ...]

    @property
    def loopback(self) -> bool:
        return any(ipaddress.ip_address(one).is_loopback for one in self.addresses)

    @property
    def usable(self) -> bool:
        """Whether it is up and has an address that other machines may reach."""
        return self.up and any(not ipaddress.ip_address(one).is_link_local for one in self.addresses)


def interfaces() -> list[Interface]:
    """The interfaces of this machine, in the kernel's order."""
    up = {name: known.isup for name, known in psutil.net_if_stats().items()}
    kinds = (socket.AF_INET, socket.AF_INET6)
    return [
        Interface(
            name,
            up.get(name, False),
            tuple(str(one.address).partition("%")[0] for kind in kinds for one in all_of_it if one.family == kind),
        )
        for name, all_of_it in psutil.net_if_addrs().items()
    ]


def resolve(name: str, timeout: float = _NAME_S) -> tuple[list[str], str]:
    """The addresses of a name, in the resolver's order, and why there are none. A name server that hangs has a deadline."""
    answers: list[tuple[list[str], str]] = []

    def ask() -> None:
        try:
            found = [
                str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            ]
            answers.append((list(dict.fromkeys(found)), ""))
        except (OSError, UnicodeError) as error:
            answers.append(([], getattr(error, "strerror", None) or str(error)))

    asking = threading.Thread(target=ask, name="ddpnb name", daemon=True)
    asking.start()
    asking.join(timeout)
    return answers[0] if answers else ([], f"no answer within {timeout:g} s")


def checks(variables: Mapping[str, str]) -> list[Check]:
    """Check the loopback, the interfaces, the host name, and what the backends choose."""
    known, name, several = interfaces(), socket.gethostname(), several_hosts(variables)
    addresses, trouble = resolve(name)
    return [
        loopback(),
        links(known),
        host_name(name, addresses, trouble, known, several=several),
        gloo(variables, name, addresses, known, several=several),
        nccl(variables, known),
    ]


def loopback() -> Check:
    """Whether this machine can connect to itself."""
    with contextlib.suppress(OSError), socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname(), timeout=_CONNECT_S):
            return _check("loopback", "connections to 127.0.0.1 work")
    told = "cannot connect to 127.0.0.1: a firewall, or no network at all"
    return _check("loopback", told, "Bring it up (ip link set lo up), and look at iptables -L.", code="DDP104")


def links(known: Sequence[Interface]) -> Check:
    """The interfaces that are up, and those that are not."""
    up = [f"{one.name} ({one.addresses[0]})" for one in known if one.up and one.addresses]
    down = [one.name for one in known if not one.up]
    empty = [one.name for one in known if one.up and not one.addresses]
    told = ", ".join(up[:_SHOWN]) + (f" and {len(up) - _SHOWN} more" if len(up) > _SHOWN else "")
    told += f"; down: {', '.join(down[:_SHOWN])}" if down else ""
    told += f"; without an address: {', '.join(empty[:_SHOWN])}" if empty else ""
    six = any(":" in address and not _local(address) for one in known for address in one.addresses)
    details = {one.name: {"up": one.up, "addresses": list(one.addresses)} for one in known}
    told = f"{told or 'none is up'}{'; IPv6' * six}"
    return Check("interfaces", "ok" if up else "warning", told, section=_SECTION, details=details)


def host_name(name: str, addresses: Sequence[str], trouble: str, known: Sequence[Interface], *, several: bool) -> Check:
    """What gloo announces to the others by default."""
    todo = f"Add {name} to /etc/hosts with the address at which others reach it, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME."
    details = {"name": name, "addresses": list(addresses)}
    if not addresses:
        told = f"{name} does not resolve ({trouble}); gloo takes the loopback instead"
        return _check("host name", told, todo, details=details)
    told = f"{name} resolves to {', '.join(addresses[:4])}"
    if all(ipaddress.ip_address(one).is_loopback for one in addresses):
        if not several:
            return _check("host name", f"{told}: right on one machine, wrong for several", details=details)
        return _check("host name", f"{told}: the other machines cannot reach it", todo, details=details)
    if not {*addresses} & {address for one in known for address in one.addresses}:
        return _check("host name", f"{told}: not an address of this machine", todo, details=details)
    return _check("host name", told, details=details)


def gloo(
    variables: Mapping[str, str], name: str, addresses: Sequence[str], known: Sequence[Interface], *, several: bool
) -> Check:
    """Its choice: GLOO_SOCKET_IFNAME, else the address of the host name, else the loopback."""
    todo = f"Set GLOO_SOCKET_IFNAME to one of: {_names(known)}."
    asked = [one for one in variables.get("GLOO_SOCKET_IFNAME", "").split(",") if one]
    if asked:
        found = {one.name: one for one in known if one.addresses}
        missing = [one for one in asked if one not in found]
        down = [one for one in asked if one in found and not found[one].up]
        if missing or down:
            bad = f"no interface {missing[0]} with an address" if missing else f"{down[0]} is down"
            return _check("gloo", f"GLOO_SOCKET_IFNAME={','.join(asked)}: {bad}", todo)
        told = ", ".join(f"{one} ({found[one].addresses[0]})" for one in asked)
        return _check("gloo", f"uses {told}, as GLOO_SOCKET_IFNAME says", details={"interfaces": asked})
    address = next((one for one in addresses if _usable(one)), None)
    if address is None:
        told = f"uses the loopback, as {name} resolves to no address of this machine"
        return _check("gloo", told, todo)
    interface = next((one.name for one in known if address in one.addresses), "lo" if _local(address) else "")
    details = {"interfaces": [interface], "address": address}
    told = f"uses {interface} ({address}), to which the host name resolves"
    if several and ipaddress.ip_address(address).is_loopback:
        return _check("gloo", f"{told}: the other machines cannot reach it", todo, details=details)
    return _check("gloo", told, details=details)


def nccl(variables: Mapping[str, str], known: Sequence[Interface]) -> Check:
    """Its choice for sockets: NCCL_SOCKET_IFNAME, else ib*, else others, else docker*, else the loopback."""
    asked = variables.get("NCCL_SOCKET_IFNAME", "")
    chosen = nccl_interfaces(asked, variables.get("NCCL_SOCKET_FAMILY", ""), known)
    if not chosen:
        told = f"NCCL_SOCKET_IFNAME={asked} matches no interface that is up" if asked else "no interface is up"
        return _check("NCCL", told, f"Set NCCL_SOCKET_IFNAME to one of: {_names(known)}.")
    first, *rest = chosen
    told = f"would use {first.name} ({first.addresses[0]})" + (", as NCCL_SOCKET_IFNAME says" if asked else "")
    told += f"; others that match: {', '.join(one.name for one in rest[:_SHOWN])}" if rest else ""
    details = {"interfaces": [one.name for one in chosen]}
    if not asked and first.name.startswith("docker"):
        todo = "Set NCCL_SOCKET_IFNAME to an interface that the other machines reach."
        return _check("NCCL", f"{told}: a bridge of containers", todo, details=details)
    return _check("NCCL", told, details=details)


def nccl_interfaces(asked: str, family: str, known: Sequence[Interface]) -> list[Interface]:
    """The interfaces that NCCL takes, the first for the start-up.

    Args:
        asked: NCCL_SOCKET_IFNAME: beginnings of names; after ``=`` names, after ``^`` what to leave out.
        family: NCCL_SOCKET_FAMILY: AF_INET or AF_INET6; by default both.
        known: of this machine.
    """
    wanted = {"AF_INET": 4, "AF_INET6": 6}.get(family)
    can = [
        one
        for one in known
        if one.up and any(wanted in (None, ipaddress.ip_address(it).version) for it in one.addresses)
    ]
    if asked:
        return [one for one in can if _matches(asked, one.name)]
    orders = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
    return next((found for order in orders if (found := [one for one in can if _matches(order, one.name)])), [])


def _matches(asked: str, name: str) -> bool:
    leaves_out = asked.startswith("^")
    exact = asked.removeprefix("^").startswith("=")
    names = [one.partition(":")[0] for one in asked.removeprefix("^").removeprefix("=").split(",") if one]
    return leaves_out != any(name == one if exact else name.startswith(one) for one in names)


def _usable(address: str) -> bool:
    """Whether a socket can be bound to it: how gloo decides."""
    kind = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(kind) as tried:
        tried.bind((address, 0))
        return True
    return False


def _local(address: str) -> bool:
    known = ipaddress.ip_address(address)
    return known.is_loopback or known.is_link_local


def _names(known: Sequence[Interface]) -> str:
    return ", ".join(one.name for one in known if one.usable and not one.loopback) or "none that is up has an address"
