"""What is known of a value, of several together, and of a project's functions so far."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

# From the most to the least certain. "rank": it depends on the rank itself. "shard": each rank has its own part, of its
# own length. "stream": an IterableDataset, of which a rank may get more than another. "failure": an exception that one rank alone may meet. "data": it was computed from a rank's own batch.
# The others are vocabulary's.
CAUSES = ("rank", "shard", "stream", "failure", "data", "files", "clock", "random", "memory")


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of an expression's value."""

    cause: str = ""  # one of CAUSES; empty: the same on every rank, as far as the source shows
    words: str = ""  # where the difference comes from
    expr: ast.expr | None = None  # what it was made of
    plain: bool = False  # a constant, a comparison, a sum: not the unexplained result of a call
    # The parameters of the function that it follows; "~x": only as a batch's results follow the batch.
    follows: frozenset[str] = frozenset()
    holder: bool = False  # an object that collects such values: it exists on all ranks


OWN_DATA = ("shard", "stream", "data")
SAME = Value()
PLAIN = Value(plain=True)


def join(*values: Value) -> Value:
    """The surest cause of several values; plain only if all are."""
    if len(values) == 1:
        (value,) = values
        return Value(value.cause, value.words, None, value.plain, value.follows, value.holder)
    worst = min(values, key=lambda value: CAUSES.index(value.cause) if value.cause else len(CAUSES), default=PLAIN)
    follows = frozenset[str]().union(*(value.follows for value in values))
    return Value(worst.cause, worst.words, None, all(value.plain for value in values), follows, worst.holder)


def loosely(*values: Value) -> Value:
    """The result of an unknown call: it differs only if an argument is the rank's own data.

    An object that only gets the rank (a device, a sampler, a file) need not give different results.
    """
    value = join(*(value for value in values if value.cause in OWN_DATA))
    every = frozenset(f"~{name.removeprefix('~')}" for name in join(*values).follows)
    return Value(value.cause, value.words, None, False, every, True)


@dataclass(slots=True)
class Facts:
    """What is known of the project's functions and attributes so far; it grows with each pass."""

    returns: dict[tuple[str, str], Value] = field(default_factory=dict[tuple[str, str], Value])
    # Parameters that are the same on all ranks after the call: the function reduces them in place.
    agrees: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict[tuple[str, str], frozenset[str]])
    arguments: dict[tuple[tuple[str, str], str], list[Value]] = field(
        default_factory=dict[tuple[tuple[str, str], str], list[Value]]
    )
    attributes: dict[str, list[Value]] = field(default_factory=dict[str, list[Value]])
    variables: dict[tuple[str, str], dict[str, Value]] = field(default_factory=dict[tuple[str, str], dict[str, Value]])
    # Exceptions of the project: whether one rank alone may raise it.
    raised: dict[str, list[bool]] = field(default_factory=dict[str, list[bool]])
    handed_on: set[tuple[str, str]] = field(
        default_factory=set[tuple[str, str]]
    )  # passed as arguments: their callers are unknown

    def settled(self, before: Facts) -> bool:
        """Whether a pass learned nothing new."""

        def causes(of: Facts) -> tuple[object, ...]:
            returned = {key: (value.cause, value.follows) for key, value in of.returns.items()}
            given = {key: {value.cause for value in values} for key, values in of.arguments.items()}
            kept = {name: {value.cause for value in values} for name, values in of.attributes.items()}
            module = {key: {n: v.cause for n, v in env.items()} for key, env in of.variables.items() if not key[1]}
            return returned, given, kept, module, of.agrees, of.handed_on, of.raised

        return causes(self) == causes(before)
