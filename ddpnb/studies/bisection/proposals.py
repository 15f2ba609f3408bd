"""What of a command may be the cause: its options, and what the script has by default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddpnb.errors import UsageError
from ddpnb.recording.source.options import Option
from ddpnb.studies.bisection.command_line import dashed, find, options_of, plain, value_of, words_of
from ddpnb.studies.bisection.varied import Varied

Declared = Mapping[str, Option]  # by each of their names
_WORKERS = re.compile(r"workers?$")
_RUNGS = {  # what the options of a rung are called
    "data": r"data|dataset|shard|split",
    "data workers": r"worker|prefetch|pin|persistent",
    "precision and compilation": r"amp|fp16|bf16|precision|compile|scaler|autocast",
    "evaluation, logging, checkpoints": r"eval|valid|log|wandb|tensorboard|callback|checkpoint|ckpt|save|resume|metric",
    "everything": "",
}


def by_name(options: Sequence[Option]) -> Declared:
    """The options that a script declares, by each of their names."""
    return {name: option for option in options for name in option.names}


def proposed(command: Sequence[str], declared: Declared, place: int) -> list[Varied]:
    """The options behind the script that can be left out, or have a harmless value.

    An option that the script requires stays, and so does one that is given its default value.

    Args:
        command: the script with its arguments, or a launch command.
        declared: the options of the script.
        place: of the script.
    """
    varied = [_proposed(command, name, declared) for name in options_of(command[place + 1 :])]
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
    words = words_of(command, found) if option is not None and option.several else [value]
    return Varied("given", found, " ".join(words), None, len(words))


def _are_workers(option: Option) -> bool:
    return any(_WORKERS.search(plain(name)) for name in option.names)


def sorted_into_rungs(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The upper rungs of the ladder, each with its options: what these are for is read from their names.

    Example:
        >>> sorted_into_rungs(["--seed", "--num-workers"])
        [('data workers', ['--num-workers']), ('everything', ['--seed'])]
    """
    data, *others = _RUNGS
    order = (*others[:-1], data, others[-1])  # --data-workers are workers, --log-data logs
    rungs: dict[str, list[str]] = {title: [] for title in _RUNGS}
    for name in names:
        rungs[next(title for title in order if re.search(_RUNGS[title], name.lower()))].append(name)
    return [(title, added) for title, added in rungs.items() if added]
