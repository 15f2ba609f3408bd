"""The command that fails, and what of it is varied: options, environment variables, the number of ranks."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from ddpnb.bisection.command_line import (
    OVERRIDE,
    dashed,
    find,
    is_number,
    is_option,
    plain,
    ranks_option,
    replaced,
    script_place,
    value_of,
)
from ddpnb.bisection.proposals import by_name, options_on, proposed, sorted_into_rungs, there_or_not
from ddpnb.bisection.space import Kind, Probe, RangeSpace, SetSpace, Space
from ddpnb.bisection.varied import Trying, Varied
from ddpnb.errors import UsageError
from ddpnb.source.options import Option

OWN = {"n": "-n", "nproc": "-n", "nproc-per-node": "-n", "backend": "--backend"}
_HINT = (
    "Write --vary NAME for an option that is there or not, or --vary 'NAME=HARMLESS|FAILING'; further values may stand "
    "between these two."
)


class CommandSpace:
    """The configurations of a command.

    Args:
        command: that fails: the script with its arguments, or a launch command.
        vary: ``NAME`` for an option that is there or not, ``NAME=HARMLESS|FAILING`` for one with a value.
        env: ``NAME=HARMLESS|FAILING`` for environment variables. An empty value: not set.
        span: ``NAME=LOW..HIGH``: whole numbers of one option, of which the first that fails is searched.
        commits: those to search, from one that works to one that fails.
        own: whether ``-n`` and ``--backend`` are ddpnb's own (a script), and not the command's.
        declared: the options that the script declares, as far as that can be read.
        ladder: with this many ranks: begin with a single process without any option, then all ranks, and so on.

    Without ``vary``, ``env``, ``span`` and ``commits`` all options of the script are varied.

    Raises:
        UsageError: nothing to vary, an option that is not there, or things that do not go together.

    Example:
        >>> space = CommandSpace(["train.py", "--amp", "--num-workers", "4"], vary=["amp", "num-workers=0|4"])
        >>> space.trying(Probe(("--amp",))).command
        ('train.py', '--amp', '--num-workers', '0')
    """

    def __init__(
        self,
        command: Sequence[str],
        vary: Sequence[str] = (),
        env: Sequence[str] = (),
        span: str | None = None,
        commits: Sequence[str] = (),
        *,
        own: bool = True,
        declared: Sequence[Option] = (),
        ladder: int | None = None,
    ) -> None:
        self.command = tuple(command)
        self._declared = by_name(declared)
        self._own = own
        self.varied: tuple[Varied, ...] = ()
        if (span is not None) + bool(commits) + bool(vary or env) > 1:
            raise UsageError(
                "a set of options, a range and commits are different searches.", "Search one of them, then the next."
            )
        self.space: Space
        if commits:
            self.space = RangeSpace("commit", commits, "git")
        elif span is not None:
            self._spanned, values = self._span(span)
            self.space = RangeSpace(self._spanned.name, values)
        else:
            chosen = [self._option(text) for text in vary] + [_variable(text) for text in env]
            self.varied = tuple(chosen or self._proposed())
            rungs: list[tuple[str, list[str]]] = []
            if ladder is not None:
                ranks = self._ranks(ladder)
                self.varied = (*ranks, *(one for one in self.varied if one.name not in [two.name for two in ranks]))
                rungs = sorted_into_rungs([one.name for one in ranks], [one.name for one in self.varied])
                named = {one.name: one for one in self.varied}
                self.varied = tuple(named[name] for _, added in rungs for name in added)
                rungs = [
                    (title, [two.name for one in added for two in named[one].components]) for title, added in rungs
                ]
            self.space = SetSpace([two for one in self.varied for two in one.components], rungs)

    @property
    def kind(self) -> Kind:
        """What is searched."""
        return self.space.kind

    def _proposed(self) -> list[Varied]:
        if not options_on(self.command, own=self._own):
            raise UsageError(
                "the command has no options to vary.", "Name what to vary: --vary, --env, --range or --git; see --help."
            )
        varied = proposed(self.command, self._declared, own=self._own)
        if not varied:
            raise UsageError(
                "the script requires all options of the command, or they are given their default values.",
                "Name what to vary: --vary 'NAME=HARMLESS|FAILING', --env, --range or --git; see --help.",
            )
        return varied

    def trying(self, probe: Probe) -> Trying:
        """What a probe runs."""
        if self.kind == "git":
            return Trying(self.command, commit=str(probe.at))
        if self.kind == "range":
            return self._with([(self._spanned, str(probe.at))])
        on = set(probe.on)
        return self._with([(one, one.value(on)) for one in self.varied], on)

    def minimal(self, causes: Sequence[str]) -> list[dict[str, str]]:
        """A failing set as JSON: names and values."""
        found = [one for one in self.varied if any(component.name in causes for component in one.components)]
        return [{"name": one.name, "value": one.value(causes) or ""} for one in found]

    def _with(self, values: Sequence[tuple[Varied, str | None]], on: Collection[str] = ()) -> Trying:
        command = list(self.command)
        environment: dict[str, str | None] = {}
        own: dict[str, str] = {}
        for one, value in values:
            if one.kind == "variable":
                environment[one.name] = value or None
            elif one.kind == "own":
                own[one.name] = value or ""
            elif one.kind == "given":
                command = command if one.name in on else replaced(command, one.name, None, one.words)
            elif value != value_of(command, one.name):
                command = replaced(command, one.name, value)
        return Trying(tuple(command), environment, own)

    def _ranks(self, size: int) -> list[Varied]:
        """The number of ranks, as something to vary; none if the command does not say it."""
        if self._own:
            return [Varied("own", "-n", str(size), "1")] if size > 1 else []
        found = ranks_option(self.command)
        value = value_of(self.command, found) if found is not None else None
        return [Varied("option", found, value, "1")] if found is not None and value not in (None, "1") else []

    def _option(self, text: str) -> Varied:
        name, equals, given = text.partition("=")
        if not equals:
            return there_or_not(self.command, name, self._declared)
        harmless, *between, failing = _values(given) or ("", "")
        if harmless == failing or not name.strip("-"):
            raise UsageError(f"--vary {text!r} needs a harmless and a failing value.", _HINT)
        own = OWN.get(plain(name))
        if self._own and own is not None:
            return Varied("own", own, failing, harmless, between=tuple(between))
        found = find(self.command, name)
        if found is None and own == "-n":
            found = ranks_option(self.command)
            if found is None:
                raise UsageError(
                    "the command does not say how many ranks it starts.", "Add its option, such as --nproc-per-node 4."
                )
        return Varied("option", found or self._spelt(name), failing or None, harmless or None, between=tuple(between))

    def _spelt(self, name: str) -> str:
        """An option that the command does not have, as it would be typed."""
        given = self.command[script_place(self.command, launcher=not self._own) + 1 :]
        overrides = any(map(OVERRIDE.match, given)) and not any(map(is_option, given))
        return name if OVERRIDE.match(f"{name}=") and (overrides or "." in name) else dashed(name)

    def _span(self, text: str) -> tuple[Varied, range]:
        name, _, given = text.partition("=")
        low, dots, high = given.partition("..")
        if not dots or not name.strip("-") or not is_number(low) or not is_number(high) or int(low) >= int(high):
            raise UsageError(
                f"--range {text!r} needs two whole numbers, the first that works and a larger one that fails.",
                "Write --range 'NAME=LOW..HIGH'.",
            )
        return self._option(f"{name}={low}|{high}"), range(int(low), int(high) + 1)

    def typed(self, trying: Trying, options: Sequence[str] = ()) -> str:
        """A probe as a command line that anyone can type.

        Args:
            trying: the probe.
            options: of ``ddpnb run``.
        """
        unset = [f"-u {name}" for name, value in trying.environment.items() if value is None]
        given = [f"{name}={shlex.quote(value)}" for name, value in trying.environment.items() if value is not None]
        before = ["env", *unset, *given] if unset else given
        command = [*options, *([] if self._own else ["--"]), *trying.command]
        return " ".join([*before, "ddpnb", "run", shlex.join(command)])


def _variable(text: str) -> Varied:
    name, equals, given = text.partition("=")
    harmless, *between, failing = _values(given) or ("", "")
    if not equals or not (name.isidentifier() and name.isascii()) or harmless == failing:
        raise UsageError(
            f"--env {text!r} needs a harmless and a failing value.",
            "Write --env 'NAME=HARMLESS|FAILING'; an empty value means that it is not set.",
        )
    return Varied("variable", name, failing, harmless, between=tuple(between))


def _values(text: str) -> list[str]:
    """Two or more values, each once, those in the middle not empty; else none."""
    values = text.split("|")
    return values if len(values) == len(set(values)) > 1 and all(values[1:-1]) else []
