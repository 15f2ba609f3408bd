"""What of a command may be the cause: its options, and what the script has by default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddpnb.bisection.command_line import (
    OVERRIDE,
    dashed,
    find,
    is_option,
    places_of,
    plain,
    script_place,
    value_of,
    words_after,
)
from ddpnb.bisection.varied import Varied
from ddpnb.errors import UsageError
from ddpnb.source.options import Option

Declared = Mapping[str, Option]  # by each of their names
_WORKERS = re.compile(r"workers?$")
_RUNGS = (  # what the options of a rung are called; the first that fits
    ("data", r"data|dataset|shard|split"),
    ("data workers", r"worker|prefetch|pin|persistent"),
    ("precision and compilation", r"amp|fp16|bf16|precision|compile|scaler|autocast"),
    (
        "evaluation, logging, checkpoints",
        r"eval|valid|log|wandb|tensorboard|callback|checkpoint|ckpt|save|resume|metric",
    ),
)


def by_name(options: Sequence[Option]) -> Declared:
    """The options that a script declares, by each of their names."""
    return {name: option for option in options for name in option.names}


def options_on(command: Sequence[str], *, own: bool) -> list[str]:
    """The options of the script on a command line, as they are spelt, each once.

    Args:
        command: the script with its arguments, or a launch command.
        own: it is a script.

    Example:
        >>> options_on(["torchrun", "--nproc-per-node", "2", "train.py", "--amp", "--lr=1"], own=False)
        ['--amp', '--lr']
    """
    given = command[script_place(command, launcher=not own) + 1 :]
    return list(dict.fromkeys(token.partition("=")[0] for token in given if is_option(token) or OVERRIDE.match(token)))


def proposed(command: Sequence[str], declared: Declared, *, own: bool) -> list[Varied]:
    """The options on a command line that can be left out, or have a harmless value.

    An option that the script requires stays, and so does one that is given its default value.
    """
    varied = [_proposed(command, name, declared) for name in options_on(command, own=own)]
    return [one for one in varied if one is not None]


def _proposed(command: Sequence[str], name: str, declared: Declared) -> Varied | None:
    one = there_or_not(command, name, declared)
    option = declared.get(name)
    if option is None or option.flag or one.failing is None:
        return one
    if _are_workers(option) and one.failing != "0" and option.default != "0":
        return Varied("option", one.name, one.failing, "0")
    return None if option.required or option.default == one.failing else one


def suggested(command: Sequence[str], declared: Declared) -> list[Varied]:
    """What is not on a command line but may be the cause: data workers that the script has by default."""
    options = {option.names[-1]: option for option in declared.values() if _are_workers(option)}
    return [
        Varied("option", name, option.default, "0")
        for name, option in options.items()
        if option.default not in (None, "0") and all(find(command, one) is None for one in option.names)
    ]


def there_or_not(command: Sequence[str], name: str, declared: Declared) -> Varied:
    """An option that is left out with all its words.

    Raises:
        UsageError: the command does not have it.
    """
    found = find(command, name)
    if found is None:
        raise UsageError(
            f"the command has no option {dashed(name)}, so that it cannot be left out.",
            "Give the failing command as it is, or two values: --vary 'NAME=HARMLESS|FAILING'.",
        )
    option, value = declared.get(found), value_of(command, found)
    if value is None or (option is not None and option.flag):
        return Varied("given", found, None, None, 0)
    if option is None or not option.several:
        return Varied("given", found, value, None)
    words = words_after(command, places_of(command, found)[-1])
    return Varied("given", found, " ".join(words), None, len(words))


def _are_workers(option: Option) -> bool:
    return any(_WORKERS.search(plain(name)) for name in option.names)


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
