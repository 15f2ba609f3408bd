"""Requests to ranks on several hosts, through the agents there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ddpnb.errors import WorldError
from ddpnb.ranks.remote.link import LATE_S, Link

_MORE_S = 1.0  # for an answer of ranks to come back from their host

Answers = dict[int, dict[str, Any]]


def ask_hosts(
    links: Mapping[str, Link],
    start: str,
    messages: Mapping[str, Mapping[int, Any]],
    timeout: float,
    here: Callable[[], Answers] = dict[int, dict[str, Any]],
) -> Answers:
    """Send each rank its own message; the answers that came in time. What is read of their files then is not older.

    Args:
        links: by host.
        start: of a process group, if there may be several.
        messages: by host and rank.
        timeout: seconds.
        here: asks those of this host, at the same time.
    """
    if not messages:
        return here()
    with ThreadPoolExecutor(len(messages)) as pool:
        pending = [pool.submit(_ask, links[host], start, mine, timeout) for host, mine in messages.items()]
        answers = here()
        for asked in pending:
            answers |= asked.result()
    return answers


def _ask(link: Link, start: str, messages: Mapping[int, Any], timeout: float) -> Answers:
    try:
        answers = link.request("ask", start, messages, timeout, timeout=timeout + _MORE_S)
    except WorldError:
        return {}
    link.look_anew(LATE_S)
    return {int(rank): answer for rank, answer in answers.items() if isinstance(answer, dict)}
