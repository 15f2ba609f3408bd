"""The command that fails, and what of it is varied: options, environment variables, the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.errors import UsageError
from ddpnb.recording.source.options import Option
from ddpnb.studies.bisection.command_line import (
    OVERRIDE,
    dashed,
    find,
    is_option,
    options_of,
    plain,
    ranks_option,
    replaced,
    script_place,
    value_of,
    whole,
)
from ddpnb.studies.bisection.proposals import by_name, proposed, sorted_into_rungs, there_or_not
from ddpnb.studies.bisection.space import Component, Probe, RangeSpace, SetSpace, Space
from ddpnb.studies.bisection.varied import Trying, Varied

_OWN = {"n": "-n", "nproc": "-n", "nproc-per-node": "-n", "backend": "--backend"}
_HINT = "Write --vary NAME for an option that is there or not, or --vary 'NAME=HARMLESS|FAILING'."


@dataclass(frozen=True, slots=True)
class Request:
    """A command that fails, how it is started, and what is searched.

    ``command``: the script with its arguments, or a launch command. ``script``: it is one, and ``-n`` and ``--backend`` are
    ddpnb's own. ``module``: it is the name of one. ``size``: number of ranks of a script. ``backend``, ``patience``, ``fork``:
    as for ``ddpnb run``. ``vary``: ``NAME`` for an option that is there or not, ``NAME=HARMLESS|FAILING`` for one with a
    value; ``env``: the same of environment variables, where an empty value means not set. ``span``: ``NAME=LOW..HIGH``, whole
    numbers of one option, of which the first that fails is searched. ``git``: ``GOOD..BAD``, commits. ``ladder``: begin with
    a single process without any option, then all ranks, and so on. ``by``: ``steps``. ``repeat``, ``confidence``: as for
    ``Search``.
    """

    command: tuple[str, ...]
    script: bool = True
    module: bool = False
    size: int = 2
    backend: str | None = None
    patience: float = 10.0
    fork: bool = False
    vary: Sequence[str] = ()
    env: Sequence[str] = ()
    span: str | None = None
    git: str | None = None
    ladder: bool = False
    by: str | None = None
    repeat: int | None = 1
    confidence: float = 0.99

    @property
    def script_place(self) -> int:
        """Where in the command the script is."""
        return 0 if self.script else script_place(self.command)

    @property
    def ranks(self) -> tuple[str, str | None] | None:
        """The option with the number of ranks, and its value; None: the command has none."""
        return ("-n", str(self.size)) if self.script else ranks_option(self.command)


class CommandSpace:
    """The configurations of a command.

    Args:
        request: what of it is varied; if that is nothing, all options of the script are.
        declared: the options that the script declares, as far as that can be read.
        commits: those to search, from one that works to one that fails.

    Raises:
        UsageError: nothing to vary, an option that is not there, or things that do not go together.

    Example:
        >>> request = Request(("train.py", "--amp", "--num-workers", "4"), vary=["amp", "num-workers=0|4"])
        >>> CommandSpace(request).trying(Probe(("--amp",))).command
        ('train.py', '--amp', '--num-workers', '0')
    """

    def __init__(self, request: Request, declared: Sequence[Option] = (), commits: Sequence[str] = ()) -> None:
        self.request, self.command = request, request.command
        self._declared = by_name(declared)
        self.varied: tuple[Varied, ...] = ()
        if (request.span is not None) + bool(commits) + bool(request.vary or request.env) > 1:
            raise UsageError(
                "a set of options, a range and commits are different searches.", "Search one of them, then the next."
            )
        self.space: Space
        if commits:
            self.space = RangeSpace("commit", commits, "git")
        elif request.span is not None:
            spanned, values = self._span(request.span)
            self.varied = (spanned,)
            self.space = RangeSpace(spanned.name, values)
        else:
            self.varied = (*map(self._option, request.vary), *map(_variable, request.env)) or self._proposed()
            rungs = self._climbed() if request.ladder else []
            self.space = SetSpace([Component(one.name, one.failing or "") for one in self.varied], rungs)

    def trying(self, probe: Probe) -> Trying:
        """What a probe runs."""
        if self.space.kind == "git":
            return Trying(self.command, commit=str(probe.at))
        command = list(self.command)
        environment: dict[str, str | None] = {}
        own: dict[str, str] = {}
        for one in self.varied:
            value = str(probe.at) if probe.at is not None else one.failing if one.name in probe.on else one.harmless
            if one.kind == "variable":
                environment[one.name] = value or None
            elif one.kind == "own":
                own[one.name] = value or ""
            elif one.kind == "given":
                command = command if one.name in probe.on else replaced(command, one.name, None, one.words)
            elif value != value_of(command, one.name):
                command = replaced(command, one.name, value)
        return Trying(tuple(command), environment, own)

    def _proposed(self) -> tuple[Varied, ...]:
        place = self.request.script_place
        varied = proposed(self.command, self._declared, place)
        if not varied:
            raise UsageError(
                "the script requires all options of the command, or they are given their default values."
                if options_of(self.command[place + 1 :])
                else "the command has no options to vary.",
                "Name what to vary: --vary 'NAME=HARMLESS|FAILING', --env, --range or --git; see --help.",
            )
        return tuple(varied)

    def _climbed(self) -> list[tuple[str, list[str]]]:
        """The rungs, each with its components; what is varied gets their order, and begins with the number of ranks."""
        named = {one.name: one for one in self.varied}
        rungs = sorted_into_rungs([one.name for one in self.varied])
        option, size = self.request.ranks or ("", None)
        if size not in (None, "1"):
            named[option] = Varied("own" if self.request.script else "option", option, size, "1")
            rungs = [(title, [name for name in added if name != option]) for title, added in rungs]
            rungs = [("all ranks", [option]), *((title, added) for title, added in rungs if added)]
        self.varied = tuple(named[name] for _, added in rungs for name in added)
        return rungs

    def _option(self, text: str) -> Varied:
        name, equals, given = text.partition("=")
        if not equals:
            return there_or_not(self.command, name, self._declared)
        harmless, different, failing = _values(given)
        if not different or not name.strip("-"):
            raise UsageError(f"--vary {text!r} needs a harmless and a failing value.", _HINT)
        own = _OWN.get(plain(name))
        if self.request.script and own is not None:
            return Varied("own", own, failing, harmless)
        found = find(self.command, name)
        if found is None and own == "-n":
            if self.request.ranks is None:
                raise UsageError(
                    "the command does not say how many ranks it starts.", "Add its option, such as --nproc-per-node 4."
                )
            found, _ = self.request.ranks
        return Varied("option", found or self._spelt(name), failing or None, harmless or None)

    def _spelt(self, name: str) -> str:
        """An option that the command does not have, as it would be typed."""
        given = self.command[self.request.script_place + 1 :]
        overrides = any(map(OVERRIDE.match, given)) and not any(map(is_option, given))
        return name if OVERRIDE.match(f"{name}=") and (overrides or "." in name) else dashed(name)

    def _span(self, text: str) -> tuple[Varied, range]:
        name, _, given = text.partition("=")
        low, high = (whole(end) for end in (given.split("..") if given.count("..") == 1 else ("", "")))
        if not name.strip("-") or low is None or high is None or low >= high:
            raise UsageError(
                f"--range {text!r} needs two whole numbers, the first that works and a larger one that fails.",
                "Write --range 'NAME=LOW..HIGH'.",
            )
        return self._option(f"{name}={low}|{high}"), range(low, high + 1)


def _variable(text: str) -> Varied:
    name, equals, given = text.partition("=")
    harmless, different, failing = _values(given)
    if not equals or not (name.isidentifier() and name.isascii()) or not different:
        raise UsageError(
            f"--env {text!r} needs a harmless and a failing value.",
            "Write --env 'NAME=HARMLESS|FAILING'; an empty value means that it is not set.",
        )
    return Varied("variable", name, failing, harmless)


def _values(text: str) -> tuple[str, bool, str]:
    """``HARMLESS|FAILING``: the two values, and whether they are two, and different."""
    harmless, bar, failing = text.partition("|")
    return harmless, bool(bar) and harmless != failing and "|" not in failing, failing
