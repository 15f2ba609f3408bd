"""The words of a command line: where the script is, its options and their values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ddpnb.errors import UsageError

OVERRIDE = re.compile(r"[+~]?[A-Za-z_][\w./@]*=")  # as Hydra takes them
_PROCESSES = ("nproc-per-node", "num-processes", "nproc", "n", "np")  # as launchers name the number of ranks
_NEGATIVE = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-inf|-nan", re.IGNORECASE)
_MODULES_THAT_LAUNCH = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")


def script_place(command: Sequence[str]) -> int:
    """Where in a launch command the script is: what ends with ``.py``, or the module after ``-m``; else the first word.

    Example:
        >>> script_place(["python", "-m", "torch.distributed.run", "-m", "pkg.train", "--amp"])
        4
    """
    modules = (n + 1 for n, word in enumerate(command[:-1]) if word == "-m")
    module = next((n for n in modules if command[n] not in _MODULES_THAT_LAUNCH), None)
    return next((n for n, token in enumerate(command) if token.endswith(".py") or n == module), 0)


def options_of(words: Sequence[str]) -> list[str]:
    """The options among words, as they are spelt, each once.

    Example:
        >>> options_of(["--amp", "--lr=1", "trainer.steps=5", "data/"])
        ['--amp', '--lr', 'trainer.steps']
    """
    return list(dict.fromkeys(token.partition("=")[0] for token in words if is_option(token) or OVERRIDE.match(token)))


def find(command: Sequence[str], name: str) -> str | None:
    """An option as the command spells it: with or without dashes, ``_`` or ``-``, or the only one that ends so.

    Raises:
        UsageError: several end so.

    Example:
        >>> find(["train.py", "--num_workers", "4"], "workers")
        '--num_workers'
    """
    wanted = plain(name)
    given = options_of(command[1:])
    exact = [one for one in given if plain(one) == wanted]
    ending = [one for one in given if plain(one).endswith((f"-{wanted}", f".{wanted}"))]
    if not exact and len(ending) > 1:
        raise UsageError(f"{name} may be {' or '.join(ending)}.", "Write the whole name.")
    return (exact or ending or [None])[0]


def ranks_option(command: Sequence[str]) -> tuple[str, str | None] | None:
    """The option with which a launcher gets the number of ranks, and its value; None: there is none.

    Example:
        >>> ranks_option(["torchrun", "--nproc-per-node=4", "train.py"])
        ('--nproc-per-node', '4')
    """
    given = {plain(token.partition("=")[0]): token.partition("=")[0] for token in command if is_option(token)}
    option = next((given[name] for name in _PROCESSES if name in given), None)
    return None if option is None else (option, value_of(command, option))


def value_of(command: Sequence[str], option: str) -> str | None:
    """The value of an option that is there, the last one if it stands twice; None: it has none."""
    for place in _places(command, option)[-1:]:
        _, equals, value = command[place].partition("=")
        return value if equals else next(iter(_words_after(command, place)), None)
    return None


def words_of(command: Sequence[str], option: str) -> list[str]:
    """All words after an option up to the next one."""
    return _words_after(command, _places(command, option)[-1])


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
        added = [] if value is None else [f"{option}={value}"] if OVERRIDE.match(f"{option}=") else [option, value]
        return [*command, *added]
    new = list(command)
    for place in reversed(places):
        joined = "=" in new[place]
        length = 1 if joined else 1 + len(_words_after(new, place)[:words])
        given = [] if value is None else [f"{option}={value}"] if joined else [option, value]
        new[place : place + length] = given if place == places[-1] else []
    return new


def is_option(token: str) -> bool:
    return token.startswith("-") and token.strip("-") != "" and not _NEGATIVE.fullmatch(token)


def whole(text: str | None) -> int | None:
    """A text as a whole number; None: it is none."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-")


def dashed(name: str) -> str:
    return name if name.startswith("-") else f"-{name}" if len(name) == 1 else f"--{name}"


def _words_after(command: Sequence[str], place: int) -> list[str]:
    return list(itertools.takewhile(lambda word: not is_option(word), command[place + 1 :]))


def _places(command: Sequence[str], option: str) -> list[int]:
    return [n for n, token in enumerate(command) if n and token.partition("=")[0] == option]
