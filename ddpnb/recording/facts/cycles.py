"""The structure of the wait-for graph: connected parts of stuck ranks, and cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ddpnb.recording.facts.waits import Wait
from ddpnb.recording.split import by_value


def connected_parts(waits: Mapping[int, Wait], stuck: Iterable[int]) -> list[set[int]]:
    """Stuck ranks and those that they wait for, as connected components, ordered by the last stuck rank of each."""
    alike = by_value((rank, waits[rank].missing) for rank in sorted(stuck))
    part_of: dict[int, set[int]] = {}
    last: dict[int, int] = {}  # by the identity of a part
    for missing, ranks in alike.items():
        joined = missing.union(ranks)
        parts = {id(part): part for rank in joined if (part := part_of.get(rank)) is not None}
        whole = max(parts.values(), key=len, default=set[int]())
        last[id(whole)] = max(ranks[-1], *(last[part] for part in parts), -1)
        for part in (*(part for part in parts.values() if part is not whole), joined):  # the smaller into the largest
            fresh = part - whole if part is joined else part
            whole |= fresh
            part_of.update(dict.fromkeys(fresh, whole))
    found = {id(part): part for part in part_of.values()}
    return sorted(found.values(), key=lambda part: last[id(part)])


def ranks_in_a_cycle(waits: Mapping[int, Wait], among: Iterable[int]) -> tuple[int, ...]:
    """The ranks in a cycle of the graph: those that, over any number of waits, wait for themselves.

    By Tarjan's algorithm. A set of ranks that several ranks wait for is one node between them, so that there are no
    more edges than such sets have members.
    """
    chosen = set(among)
    found: set[int] = set()
    order: dict[int | frozenset[int], int] = {}  # when a node was visited
    low: dict[int | frozenset[int], int] = {}
    path: list[int | frozenset[int]] = []
    on_path: set[int | frozenset[int]] = set()

    def begin(node: int | frozenset[int]) -> tuple[int | frozenset[int], Iterator[int | frozenset[int]]]:
        order[node] = low[node] = len(order)
        path.append(node)
        on_path.add(node)
        return node, iter([waits[node].missing] if isinstance(node, int) else [m for m in node if m in chosen])

    for start in sorted(chosen):
        stack = [begin(start)] if start not in order else []
        while stack:
            node, following = stack[-1]
            after = next(following, None)
            if after is None:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
                if low[node] == order[node]:  # all from here on can reach each other
                    part = [path.pop()]
                    while part[-1] != node:
                        part.append(path.pop())
                    on_path.difference_update(part)
                    if len(part) > 1:
                        found.update(member for member in part if isinstance(member, int))
            elif after not in order:
                stack.append(begin(after))
            elif after in on_path:
                low[node] = min(low[node], order[after])
    return tuple(sorted(found))
