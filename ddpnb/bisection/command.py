"""The command that fails, and what of it is varied: options, environment variables, the number of ranks."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ddpnb.bisection.space import Component, Kind, Probe, RangeSpace, SetSpace, Space
from ddpnb.errors import UsageError
from ddpnb.source.options import Option

OWN = {"n": "-n", "nproc": "-n", "nproc-per-node": "-n", "backend": "--backend"}
_PROCESSES = ("nproc-per-node", "num-processes", "nproc", "n", "np")  # as launchers name the number of ranks
_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-inf|-nan", re.IGNORECASE)
_OVERRIDE = re.compile(r"[+~]?[A-Za-z_][\w./@]*=")  # as Hydra takes them
_RUNGS = (  # what the options of a rung are called; the first that fits
    ("data", r"data|dataset|shard|split"),
    ("data workers", r"worker|prefetch|pin|persistent"),
    ("precision and compilation", r"amp|fp16|bf16|precision|compile|scaler|autocast"),
    (
        "evaluation, logging, checkpoints",
        r"eval|valid|log|wandb|tensorboard|callback|checkpoint|ckpt|save|resume|metric",
    ),
)
_MODULES_THAT_LAUNCH = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_WORKERS = re.compile(r"workers?$")
_HINT = (
    "Write --vary NAME for an option that is there or not, or --vary 'NAME=HARMLESS|FAILING'; further values may stand "
    "between these two."
)


@dataclass(frozen=True, slots=True)
class Trying:
    """What one probe runs.

    ``command``: the script with its arguments, or a launch command. ``environment``: variables to set, None to remove.
    ``own``: values of ddpnb's own options ``-n`` and ``--backend``. ``commit``: to check out, None for the files as they
    are.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    own: Mapping[str, str] = field(default_factory=dict[str, str])
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class Varied:
    """Something of a command that takes one of two values, or of several in order; None: it is not there.

    ``kind``: ``given`` for an option that stays as the command has it, or is left out; ``option`` for one whose value is
    replaced; ``variable`` of the environment; ``own`` for an option of ddpnb. ``words``: that its value takes at most.
    ``between``: values between the harmless and the failing one.
    """

    kind: str
    name: str
    failing: str | None
    harmless: str | None
    words: int = 1
    between: tuple[str, ...] = ()

    @property
    def components(self) -> tuple[Component, ...]:
        """As components: on is the failing value; of several values, each requires those before it."""
        if not self.between:
            return (Component(self.name, self.failing or ""),)
        names = [f"{self.name}={value}" for value in (*self.between, self.failing or "")]
        first, *more = names
        return (
            Component(first),
            *(
                Component(name, requires=(before,), instead_of=before)
                for before, name in zip(names, more, strict=False)
            ),
        )

    def value(self, on: Collection[str]) -> str | None:
        """Its value with these components on."""
        values = (*self.between, self.failing)
        reached = [value for value, component in zip(values, self.components, strict=True) if component.name in on]
        return reached[-1] if reached else self.harmless

    def __str__(self) -> str:
        return "|".join(
            (str(self.components[0]), *(value for value in (*self.between[1:], self.failing or "") if self.between))
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
        self._declared = {name: option for option in declared for name in option.names}
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
            self.varied = tuple(chosen or self.proposed())
            rungs: list[tuple[str, list[str]]] = []
            if ladder is not None:
                ranks = self._ranks(ladder)
                self.varied = (*ranks, *(one for one in self.varied if one.name not in [two.name for two in ranks]))
                rungs = sorted_into_rungs([one.name for one in ranks], [one.name for one in self.varied])
                by_name = {one.name: one for one in self.varied}
                self.varied = tuple(by_name[name] for _, added in rungs for name in added)
                rungs = [
                    (title, [two.name for one in added for two in by_name[one].components]) for title, added in rungs
                ]
            self.space = SetSpace([two for one in self.varied for two in one.components], rungs)

    @property
    def kind(self) -> Kind:
        """What is searched."""
        return self.space.kind

    def proposed(self) -> list[Varied]:
        """The options of the command that can be left out, or have a harmless value.

        An option that the script requires stays, and so does one that is given its default value.

        Raises:
            UsageError: it has none.
        """
        given = self.command[script_place(self.command, launcher=not self._own) + 1 :]
        names = [token.partition("=")[0] for token in given if _is_option(token) or _OVERRIDE.match(token)]
        if not names:
            raise UsageError(
                "the command has no options to vary.", "Name what to vary: --vary, --env, --range or --git; see --help."
            )
        varied = [self._proposed(name) for name in dict.fromkeys(names)]
        if not any(varied):
            raise UsageError(
                "the script requires all options of the command, or they are given their default values.",
                "Name what to vary: --vary 'NAME=HARMLESS|FAILING', --env, --range or --git; see --help.",
            )
        return [one for one in varied if one is not None]

    def _proposed(self, name: str) -> Varied | None:
        one = self._there_or_not(name)
        option = self._declared.get(name)
        if option is None or option.flag or one.failing is None:
            return one
        if _are_workers(option) and one.failing != "0" and option.default != "0":
            return Varied("option", one.name, one.failing, "0")
        return None if option.required or option.default == one.failing else one

    def suggested(self) -> list[Varied]:
        """What is not on the command line but may be the cause: data workers that the script has by default."""
        options = {option.names[-1]: option for option in self._declared.values() if _are_workers(option)}
        return [
            Varied("option", name, option.default, "0")
            for name, option in options.items()
            if option.default not in (None, "0") and all(find(self.command, one) is None for one in option.names)
        ]

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
        found = _processes(self.command)
        value = value_of(self.command, found) if found is not None else None
        return [Varied("option", found, value, "1")] if found is not None and value not in (None, "1") else []

    def _option(self, text: str) -> Varied:
        name, equals, given = text.partition("=")
        if not equals:
            return self._there_or_not(name)
        harmless, *between, failing = _values(given) or ("", "")
        if harmless == failing or not name.strip("-"):
            raise UsageError(f"--vary {text!r} needs a harmless and a failing value.", _HINT)
        own = OWN.get(_plain(name))
        if self._own and own is not None:
            return Varied("own", own, failing, harmless, between=tuple(between))
        found = find(self.command, name)
        if found is None and own == "-n":
            found = _processes(self.command)
            if found is None:
                raise UsageError(
                    "the command does not say how many ranks it starts.", "Add its option, such as --nproc-per-node 4."
                )
        return Varied("option", found or self._spelt(name), failing or None, harmless or None, between=tuple(between))

    def _spelt(self, name: str) -> str:
        """An option that the command does not have, as it would be typed."""
        given = self.command[script_place(self.command, launcher=not self._own) + 1 :]
        overrides = any(map(_OVERRIDE.match, given)) and not any(map(_is_option, given))
        return name if _OVERRIDE.match(f"{name}=") and (overrides or "." in name) else _dashed(name)

    def _there_or_not(self, name: str) -> Varied:
        found = find(self.command, name)
        if found is None:
            raise UsageError(
                f"the command has no option {_dashed(name)}, so that it cannot be left out.",
                "Give the failing command as it is, or two values: --vary 'NAME=HARMLESS|FAILING'.",
            )
        option, value = self._declared.get(found), value_of(self.command, found)
        if value is None or (option is not None and option.flag):
            return Varied("given", found, None, None, 0)
        if option is None or not option.several:
            return Varied("given", found, value, None)
        words = _words_after(self.command, _places(self.command, found)[-1])
        return Varied("given", found, " ".join(words), None, len(words))

    def _span(self, text: str) -> tuple[Varied, range]:
        name, _, given = text.partition("=")
        low, dots, high = given.partition("..")
        if not dots or not name.strip("-") or not _is_number(low) or not _is_number(high) or int(low) >= int(high):
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


def _are_workers(option: Option) -> bool:
    return any(_WORKERS.search(_plain(name)) for name in option.names)


def script_place(command: Sequence[str], *, launcher: bool = True) -> int:
    """Where in a command the script is: what ends with ``.py``, or the module after ``-m``; else the first word.

    Example:
        >>> script_place(["python", "-m", "torch.distributed.run", "-m", "pkg.train", "--amp"])
        4
    """
    if not launcher:
        return 0
    modules = (n + 1 for n, word in enumerate(command[:-1]) if word == "-m")
    module = next((n for n in modules if command[n] not in _MODULES_THAT_LAUNCH), None)
    return next((n for n, token in enumerate(command) if token.endswith(".py") or n == module), 0)


def sorted_into_rungs(ranks: Sequence[str], names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The ladder: all ranks, data, data workers, precision, evaluation and the like, everything. Each is named by its title.

    Args:
        ranks: the option for the number of ranks, if there is one.
        names: of all options; what they are for is read from their names.

    Example:
        >>> sorted_into_rungs(["-n"], ["-n", "--num-workers", "--seed"])
        [('all ranks', ['-n']), ('data workers', ['--num-workers']), ('everything', ['--seed'])]
    """
    rungs: dict[str, list[str]] = {"all ranks": [*ranks], **{title: [] for title, _ in _RUNGS}, "everything": []}
    order = (_RUNGS[1], _RUNGS[2], _RUNGS[3], _RUNGS[0])  # --data-workers are workers, --log-data logs
    for name in names:
        if name not in ranks:
            words = name.lower().replace("_", "-")
            rungs[next((title for title, pattern in order if re.search(pattern, words)), "everything")].append(name)
    return [(title, added) for title, added in rungs.items() if added]


def find(command: Sequence[str], name: str) -> str | None:
    """An option as the command spells it: with or without dashes, ``_`` or ``-``, or the only one that ends so.

    Raises:
        UsageError: several end so.

    Example:
        >>> find(["train.py", "--num_workers", "4"], "workers")
        '--num_workers'
    """
    wanted = _plain(name)
    given = [token.partition("=")[0] for token in command[1:] if _is_option(token) or "=" in token]
    exact = [one for one in given if _plain(one) == wanted]
    ending = [one for one in dict.fromkeys(given) if _plain(one).endswith((f"-{wanted}", f".{wanted}"))]
    if not exact and len(ending) > 1:
        raise UsageError(f"{name} may be {' or '.join(ending)}.", "Write the whole name.")
    return (exact or ending or [None])[0]


def number_of_ranks(command: Sequence[str]) -> int | None:
    """How many ranks a launch command starts, as its options say; None: they do not.

    Example:
        >>> number_of_ranks(["torchrun", "--nproc-per-node=4", "train.py"])
        4
    """
    option = _processes(command)
    value = value_of(command, option) if option is not None else None
    return int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 6 else None


def _processes(command: Sequence[str]) -> str | None:
    """The option with which a launcher gets the number of ranks."""
    given = {_plain(token.partition("=")[0]): token.partition("=")[0] for token in command if _is_option(token)}
    return next((given[name] for name in _PROCESSES if name in given), None)


def value_of(command: Sequence[str], option: str) -> str | None:
    """The value of an option that is there, the last one if it stands twice; None: it has none."""
    places = _places(command, option)
    if not places:
        return None
    _, equals, value = command[places[-1]].partition("=")
    if equals:
        return value
    return next(iter(_words_after(command, places[-1])), None)


def replaced(command: Sequence[str], option: str, value: str | None, words: int = 1) -> list[str]:
    """The command with another value of an option, once; None: without the option.

    Args:
        command: program and arguments.
        option: as the command spells it; one that is not there is added at the end.
        value: to give it.
        words: after it that are its value, at most; 0: it has none.
    """
    places = _places(command, option)
    if not places:
        added = [] if value is None else [f"{option}={value}"] if _OVERRIDE.match(f"{option}=") else [option, value]
        return [*command, *added]
    new = list(command)
    for place in reversed(places):
        joined = "=" in new[place]
        length = 1 if joined else 1 + len(_words_after(new, place)[:words])
        given = [] if value is None else [f"{option}={value}"] if joined else [option, value]
        new[place : place + length] = given if place == places[-1] else []
    return new


def _words_after(command: Sequence[str], place: int) -> list[str]:
    return list(itertools.takewhile(lambda word: not _is_option(word), command[place + 1 :]))


def _places(command: Sequence[str], option: str) -> list[int]:
    return [n for n, token in enumerate(command) if n and token.partition("=")[0] == option]


def _variable(text: str) -> Varied:
    name, equals, given = text.partition("=")
    harmless, *between, failing = _values(given) or ("", "")
    if not equals or not name or harmless == failing:
        raise UsageError(
            f"--env {text!r} needs a harmless and a failing value.",
            "Write --env 'NAME=HARMLESS|FAILING'; an empty value means that it is not set.",
        )
    return Varied("variable", name, failing, harmless, between=tuple(between))


def _values(text: str) -> list[str]:
    """Two or more values, each once, those in the middle not empty; else none."""
    values = text.split("|")
    return values if len(values) == len(set(values)) > 1 and all(values[1:-1]) else []


def _is_option(token: str) -> bool:
    return token.startswith("-") and token.strip("-") != "" and not _NEGATIVE.fullmatch(token)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and len(text) < 19


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def _dashed(name: str) -> str:
    return name if name.startswith("-") else f"-{name}" if len(name) == 1 else f"--{name}"
