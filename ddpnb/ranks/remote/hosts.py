"""The hosts of a connected ipyparallel Client, checked before ranks are launched on them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipyparallel

from ddpnb.errors import LaunchError, UsageError
from ddpnb.ranks.devices import HostDevices, Plan
from ddpnb.ranks.environment import LOOPBACK
from ddpnb.ranks.remote import addresses, bootstrap

_ENCRYPT = (
    "Start the controller with IPP_ENABLE_CURVE=1 (or --IPController.enable_curve=True), or let the Client use SSH."
)


@dataclass(frozen=True)
class Host:
    """A host with engines of the user's; the first of these starts our agent."""

    name: str
    engines: tuple[int, ...]
    facts: Mapping[str, Any]
    cpus: tuple[int, ...]  # that at least one of the engines may use: Slurm and MPI may bind each to its own

    @property
    def devices(self) -> HostDevices:
        return HostDevices(self.name, len(self.engines), int(self.facts["gpus"]), bool(self.facts["nccl"]))


class Hosts:
    """The hosts of a Client.

    Args:
        client: connected, with at least one engine on each host that is to be used; or a DirectView, of the engines that
            are to be used. It stays the user's.
        timeout: seconds for all that is asked before the launch.

    Raises:
        UsageError: this is no open Client, it has no engines, or its connections are not encrypted.
        LaunchError: an engine does not answer, or a host cannot be used.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = _usable(getattr(client, "client", client) if _is_view(client) else client)
        self._deadline = time.monotonic() + timeout
        self.all: list[Host] = []
        ids = [engine for engine in self._client.ids if not _is_view(client) or engine in _targets(client)]
        if not ids:
            raise UsageError(
                "the Client has no engines.",
                "Wait for them: client.wait_for_engines(n), with n as many as you started.",
            )
        facts = self._ask(dict.fromkeys(ids, (bootstrap.facts, ())))
        by_name: dict[str, list[int]] = {}
        for engine in ids:
            by_name.setdefault(str(facts[engine]["host"]), []).append(engine)
            if facts[engine]["connection"]:
                raise _not_encrypted(f"engine {engine} of the Client is connected to {facts[engine]['connection']}")
        names = sorted(by_name, key=_natural)  # engines register in any order
        self.all = [_host(name, by_name[name], facts) for name in names]
        for host in self.all:
            _check_versions(host)
        self.warnings = _differing_torch(self.all)
        self.address = self._address_of_launcher()

    @property
    def devices(self) -> list[HostDevices]:
        return [host.devices for host in self.all]

    def use(self, plan: Plan) -> None:
        """Keep the hosts that have ranks, and find out where they reach that of rank 0.

        Raises:
            LaunchError: they do not.
        """
        self.all = [host for host in self.all if host.name in plan.hosts]
        #: MASTER_ADDR, and for each host the network interface through which others reach it; empty on a single host
        self.master, self.interfaces = LOOPBACK, dict[str, str]()
        first, others = self.all[0], self.all[1:]
        if not others:
            return
        port, word = self._ask({first.engines[0]: (bootstrap.listen, ())})[first.engines[0]]
        tried = [address for address in first.facts["addresses"] if not address.startswith("127.")]
        found = self._ask({host.engines[0]: (addresses.reached, (tried, port, word)) for host in others})
        self.master = addresses.common(list(found.values()))
        if not self.master:
            silent = [host.name for host in others if not found[host.engines[0]]]
            raise LaunchError(
                f"no address of {first.name} is reached from {', '.join(silent) or 'all other hosts'}: tried "
                f"{', '.join(tried) or 'none, it has only a loopback'}.",
                "The hosts must be on one network, and a firewall must let them connect to each other.",
            )
        own = {host.name: dict(map(tuple, found[host.engines[0]]))[self.master] for host in others}
        own[first.name] = self.master
        self.interfaces = {host.name: host.facts["addresses"].get(own[host.name], "") for host in self.all}

    def start_agents(
        self, order: Callable[[Host], Mapping[str, Any]], names: Collection[str], deadline: float
    ) -> dict[str, int]:
        """Start an agent on each of these hosts; host -> its process ID there.

        Raises:
            LaunchError: one could not be started.
        """
        self._deadline = deadline
        hosts = [host for host in self.all if host.name in names]
        started = self._ask({host.engines[0]: (bootstrap.start, (dict(order(host)),)) for host in hosts})
        return {host.name: started[host.engines[0]] for host in hosts}

    def ask_after(self, host: str, pid: int) -> Any:
        """Ask for the exit status of an agent. Returns the AsyncResult: None while it runs."""
        engine = next(one.engines[0] for one in self.all if one.name == host)
        return self._client[engine].apply_async(bootstrap.exit_status, pid)

    def _address_of_launcher(self) -> str:
        with addresses.Listener() as listener:
            asked = (addresses.reached, (list(addresses.own_addresses()), listener.port, listener.word))
            found = self._ask({host.engines[0]: asked for host in self.all})
        address = addresses.common(list(found.values()))
        if not address:
            silent = [host.name for host in self.all if not found[host.engines[0]]]
            raise LaunchError(
                f"this machine is not reached from {', '.join(silent) or 'all hosts at one address'}: tried "
                f"{', '.join(addresses.own_addresses())}.",
                "Ranks connect to the notebook's machine: run the notebook where the hosts can reach it (a login node, or "
                "a node of the allocation), and let the firewall pass.",
            )
        return address

    def _ask(self, calls: Mapping[int, tuple[Callable[..., Any], Sequence[Any]]]) -> dict[int, Any]:
        """Call importable functions on the user's engines, at the same time.

        Raises:
            LaunchError: one raises, or does not answer in time.
        """
        pending = {
            engine: self._client[engine].apply_async(function, *given) for engine, (function, given) in calls.items()
        }
        results: dict[int, Any] = {}
        silent: list[int] = []
        for engine, result in pending.items():
            try:
                results[engine] = result.get(max(0.1, self._deadline - time.monotonic()))
            except TimeoutError:
                silent.append(engine)
            except ipyparallel.RemoteError as error:
                raise LaunchError(
                    f"engine {engine} of the Client cannot be used: {error.ename}: {str(error.evalue)[:300]}.",
                    "Each host needs the same ddpnb and torch as this machine, in the Python that runs its engines.",
                ) from None
        if silent:
            one = len(silent) == 1
            others = sorted(results) or [other for host in self.all for other in host.engines if other not in silent]
            raise LaunchError(
                f"engine{'' if one else 's'} {', '.join(map(str, silent))} of the Client {'does' if one else 'do'} not "
                "answer.",
                "Busy with a call of yours? Wait for that, or use a longer timeout=. If the host is down, launch on the "
                f"others: ddpnb.launch(n, hosts=client[{others or '[...]'}]).",
            )
        return results


def _is_view(given: Any) -> bool:
    return isinstance(given, ipyparallel.DirectView)


def _targets(view: Any) -> list[int]:
    targets: Any = view.targets
    if targets == "all":
        return list(view.client.ids)
    return [targets] if isinstance(targets, int) else list(targets)


def _usable(client: Any) -> ipyparallel.Client:
    if not isinstance(client, ipyparallel.Client):
        raise UsageError(
            f"hosts must be a connected ipyparallel.Client, not {type(client).__name__}.",
            "ddpnb.launch(8, hosts=ipyparallel.Client(profile=...)).",
        )
    if client._closed:
        raise UsageError("the Client is closed.", "Connect again: ipyparallel.Client(...).")
    interface = str(client._config.get("interface", ""))
    if not (interface.startswith(bootstrap.LOCAL) or client.curve_serverkey or client._ssh):
        raise _not_encrypted(f"the Client is connected to {interface}")
    return client


def _not_encrypted(connection: str) -> UsageError:
    return UsageError(f"{connection} without encryption: who is on that network could run code as you.", _ENCRYPT)


def _host(name: str, engines: Sequence[int], facts: Mapping[int, Mapping[str, Any]]) -> Host:
    cpus = sorted({int(cpu) for engine in engines for cpu in facts[engine]["cpus"]})
    return Host(name, tuple(engines), facts[engines[0]], tuple(cpus))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``node9`` before ``node10``, as schedulers do."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def _check_versions(host: Host) -> None:
    """ddpnb and Python must be those of this machine: functions are sent as bytecode.

    Raises:
        LaunchError: they are not, or there is no torch.
    """
    facts = host.facts
    here = {"ddpnb": bootstrap.version(), "Python": "{}.{}".format(*sys.version_info[:2])}
    there = {"ddpnb": facts["ddpnb"], "Python": "{}.{}".format(*facts["python"])}
    for name, version in here.items():
        if version != there[name]:
            raise LaunchError(
                f"host {host.name} has {name} {there[name]}, this machine has {version}.",
                f"Use the same {name} on all hosts.",
            )
    if not facts["torch"]:
        raise LaunchError(f"host {host.name} has no torch.", "Install it in the Python that runs its engines.")


def _differing_torch(hosts: Sequence[Host]) -> tuple[str, ...]:
    versions = {host.name: str(host.facts["torch"]) for host in hosts}
    if len(set(versions.values())) < 2:
        return ()
    told = ", ".join(f"{version} on {name}" for name, version in versions.items())
    return (f"the hosts have different versions of torch: {told}.",)
