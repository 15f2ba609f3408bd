"""Mask who and where: names of machines and users, homes and addresses, before a report leaves the machine.

The same name always gets the same placeholder (``host1``, ``user1``, ``address1``), so that a reader still sees what is equal.
Names that this machine cannot know, such as those of other users' machines in a log, stay. ``localhost``, ``root`` and
loopback addresses tell nothing of anybody and stay too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

HOME = "~"
_KEPT = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "root", "none"})
_BEFORE, _AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_DOMAIN = r"(?:\.[A-Za-z][A-Za-z0-9-]*)*"
_HOMES = re.compile(r"(?P<folder>/(?:home|Users)/)(?P<user>[^/\s\"':;,)\]}>]+)")
_MAC = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:])")
_V6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4})(?![\w:]|\.\d)")
_V4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_PATH = re.compile(r"[/.:]")
_NUMBERED = re.compile(r"([A-Za-z][\w.-]*?)\[[\d,-]+\]")  # node[17-20], as Slurm writes it


class Identities:
    """Masks names of machines and users, homes and addresses.

    Args:
        hosts: names of machines, also as Slurm lists them (``node[1-4],login``).
        users: names of users.
        homes: folders that become ``~``.

    Example:
        >>> Identities(["node-3"], ["ann"], ["/home/ann"]).mask("ann@node-3.example: /home/ann/x on 192.0.2.7")
        'user1@host1: ~/x on address1'
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), homes: Iterable[str] = ()) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._users = {one for one in users if len(one) > 1 and one.lower() not in _KEPT}
        folders = sorted(
            {one.rstrip("/") for one in homes if one.count("/") and one.rstrip("/")}, key=len, reverse=True
        )
        names = "|".join(map(re.escape, folders))
        self._homes = re.compile(rf"(?<![\w.~/-])(?:{names})(?=[/\s\"':;,)\]}}>]|$)") if folders else None
        patterns = sorted({pattern for host in hosts for pattern in _patterns(host)}, key=len, reverse=True)
        self._hosts = (
            re.compile(rf"{_BEFORE}(?:{'|'.join(patterns)}){_DOMAIN}{_AFTER}", re.IGNORECASE) if patterns else None
        )

    def learn(self, text: str) -> None:
        """Take note of the users whose homes a text names: they are masked in all texts from then on."""
        known = (
            found["user"] for found in _HOMES.finditer(text if self._homes is None else self._homes.sub(HOME, text))
        )
        self._users |= {one for one in known if len(one) > 1 and one.lower() not in _KEPT}

    def mask(self, text: str) -> str:
        """The text with placeholders."""
        self.learn(text)
        if self._homes is not None:
            text = self._homes.sub(HOME, text)
        text = _MAC.sub(lambda found: self._placeholder("mac", found[0].lower()), text)
        text = _V4.sub(self._address, _V6.sub(self._address, text))
        if self._hosts is not None:
            text = self._hosts.sub(self._host, text)
        if self._users:
            names = "|".join(map(re.escape, sorted(self._users, key=len, reverse=True)))
            text = re.sub(rf"{_BEFORE}(?:{names}){_AFTER}", lambda found: self._placeholder("user", found[0]), text)
        return text

    def masked(self, value: Any) -> Any:
        """The same for what JSON can hold. Of the names in it, only those that are paths or addresses are masked."""
        if isinstance(value, Mapping):
            return {
                self.mask(str(key)) if _PATH.search(str(key)) else str(key): self.masked(one)
                for key, one in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.masked(one) for one in value]
        return self.mask(value) if isinstance(value, str) else value

    def _placeholder(self, kind: str, key: str) -> str:
        if (kind, key) not in self._placeholders:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._placeholders[kind, key] = f"{kind}{self._counts[kind]}"
        return self._placeholders[kind, key]

    def _host(self, found: re.Match[str]) -> str:
        return self._placeholder("host", found[0].lower().partition(".")[0])

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        address = mapped or address
        if address.is_loopback or address.is_unspecified:
            return found[0]
        return self._placeholder("address", str(address))


def _patterns(host: str) -> list[str]:
    """What matches the names in a host name, or in a list of them."""
    numbered = [rf"{re.escape(found[1])}\d+" for found in _NUMBERED.finditer(host)]
    plain = [one.strip().partition(".")[0] for one in _NUMBERED.sub("", host).split(",")]
    return numbered + [re.escape(one) for one in plain if one and not one.isdecimal() and one.lower() not in _KEPT]
