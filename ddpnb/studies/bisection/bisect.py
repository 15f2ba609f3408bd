"""``ddpnb.bisect``: what makes a script, a launch command or a function fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.ranks import devices
from ddpnb.ranks.environment import working_directory
from ddpnb.recorder.process.components import Component, called_components, component
from ddpnb.recording.source.options import declared
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.bisection.command import CommandSpace, Request
from ddpnb.studies.bisection.locating import StepsBisection
from ddpnb.studies.bisection.log import not_a_log, read_log
from ddpnb.studies.bisection.probing import CommandProber
from ddpnb.studies.bisection.proposals import by_name, proposed, suggested
from ddpnb.studies.bisection.search import Search
from ddpnb.studies.bisection.space import Component as Named
from ddpnb.studies.bisection.space import SetSpace
from ddpnb.studies.bisection.varied import Varied
from ddpnb.studies.bisection.words import trial as line
from ddpnb.studies.bisection.worktrees import Repository
from ddpnb.studies.bisection.world_probes import WorldProber
from ddpnb.world.run_requests import check_script, check_terms
from ddpnb.world.world import World

STEPS = "steps"
Parts = Callable[..., Any] | Sequence[Callable[..., Any]]


def bisect(
    target: str | os.PathLike[str] | Parts | Sequence[str],
    *args: Any,
    world: World | None = None,
    n: int | None = None,
    vary: Sequence[str] = (),
    env: Sequence[str] = (),
    span: str | None = None,
    git: str | None = None,
    ladder: bool = False,
    by: str | None = None,
    repeat: int | None = 1,
    confidence: float = 0.99,
    backend: str | None = None,
    patience: float = 10.0,
    fork: bool = False,
    log: str | os.PathLike[str] | None = None,
    run: bool = True,
    quiet: bool = False,
) -> Bisection:
    """Find what makes a program fail: the smallest set of options or components, the first value, or the first commit.

    The first probe is the program as given, which fails. Each further probe is a fresh start without some of it; it is
    bad if it has the same finding at the same place. A hang is known within a second, and ended.

    Args:
        target: path of a script; a launch command as a list; or, with ``world``, a function whose parts are marked with
            ``ddpnb.component``, or a list of functions that are called in order.
        args: of the script, or of the function.
        world: whose ranks run the functions, each probe with a new process group and with the user's modules imported
            again; variables of cells stay. A script needs none.
        n: number of ranks of a script (default: one per GPU, else 2).
        vary: options of the script: ``"amp"`` is there or not; ``"workers=0|4"`` has a harmless and a failing value.
            By default all of its options.
        env: environment variables, ``"NAME=HARMLESS|FAILING"``; an empty value means not set.
        span: ``"NAME=LOW..HIGH"``: the first value of an option that fails.
        git: ``"GOOD..BAD"``: the first commit that fails, each in a checkout of its own.
        ladder: begin with a single process without options, then all ranks, data, data workers, precision, evaluation and
            logging, everything; the first of these that fails is narrowed down.
        by: ``"steps"``: the first optimizer step at which the replicas differ, read from the recording of one run, and of
            a second one that looks at each step where the first did not.
        repeat: how many times a configuration has to work to count as good; None: as often as ``confidence`` needs.
        confidence: wanted for a failure that does not always happen.
        backend, patience: as for ``launch()``.
        fork: start the ranks of a script sooner, as ``ddpnb run --fork``.
        log: file to keep the answers in, with which ``ddpnb bisect --resume`` continues; None: none.
        run: False: only prepare it, for ``step()``, ``answer()`` and ``undo()``.
        quiet: print nothing.

    Returns:
        The bisection, with its result.

    Raises:
        UsageError: there is nothing to vary, or things that do not go together.
        ScriptNotFound: the script does not exist.
        WorldError: the World is closed.

    Example:
        >>> found = ddpnb.bisect("train.py", "--amp", "--num-workers", "4", vary=["amp", "num-workers=0|4"])
        >>> found.minimal
        [{'name': '--num-workers', 'value': '4'}]
    """
    if (parts := _parts(target)) is not None:
        if any((vary, env, span, git, ladder)):
            raise UsageError("vary, env, span, git and ladder are for scripts.", "Of functions, components are varied.")
        bisection = _of_functions(*parts, args, world, by, repeat, confidence)
    else:
        script = isinstance(target, (str, os.PathLike))
        command = (*([os.fsdecode(target)] if script else map(os.fsdecode, target)), *map(str, args))  # type: ignore[arg-type]
        size = n if n is not None else devices.count_gpus() or 2
        how = (script, False, size, backend, patience, fork)
        request = Request(command, *how, tuple(vary), tuple(env), span, git, ladder, by, repeat, confidence)
        bisection = of_command(request, None if log is None else os.fspath(log))
    if run:
        bisection.run(
            None
            if quiet
            else lambda one: print(line(one, len(bisection.trials), bisection.left, bisection.search), flush=True)
        )
    return bisection


def of_command(request: Request, log: str | None = None) -> Bisection:
    """A search over the configurations of a script or a launch command.

    Raises:
        UsageError: there is nothing to vary, or things that do not go together.
        ScriptNotFound: the script does not exist.
        DeviceError: there are not as many devices.
    """
    check_terms("raise", request.patience)
    varies = any((request.vary, request.env, request.span, request.git, request.ladder))
    _check_by(request.by, varies or request.repeat != 1 or log is not None)
    if request.script:
        if not request.module:
            check_script(request.command[0])
        devices.plan(request.size, request.backend)
    if request.by == STEPS:
        return StepsBisection(CommandProber(request))
    repository = Repository(working_directory()) if request.git is not None else None
    commits = repository.commits(request.git) if repository is not None and request.git is not None else ()
    options = () if request.module else declared(request.command[request.script_place])
    space = CommandSpace(request, options, commits)
    search = Search(space.space, request.repeat, request.confidence)
    return Bisection(search, CommandProber(request, space.trying, repository), log, asdict(request))


def continued(path: str) -> Bisection:
    """A search that a log continues.

    Raises:
        UsageError: it is not such a log, or of another version.
    """
    log = read_log(path)
    with not_a_log():
        options = log["options"]
        bisection = of_command(Request(**options | {"command": tuple(map(str, options["command"]))}), path)
        bisection.resume(log)
    return bisection


def is_script(command: Sequence[str]) -> bool:
    """Whether a command line begins with a script, which ddpnb starts; else it is a launch command."""
    return command[0].endswith(".py")


def proposals(command: Sequence[str]) -> tuple[list[Varied], list[Varied]]:
    """What may be varied of a command: options that are on it, and what is not on it but may be the cause.

    Raises:
        ScriptNotFound: the script does not exist.
    """
    request = Request(tuple(command), is_script(command))
    if request.script:
        check_script(command[0])
    options = by_name(declared(command[request.script_place]))
    return proposed(command, options, request.script_place), suggested(command, options)


def _parts(target: Any) -> tuple[Callable[..., Any] | None, list[Component]] | None:
    """The function and its components; None: the target is a script or a command."""
    if isinstance(target, (str, os.PathLike)):
        return None
    if callable(target):
        return target, called_components(target)
    functions: list[Any] = list(target) if isinstance(target, (list, tuple)) else []
    if functions and all(callable(one) for one in functions):
        return None, [one if isinstance(one, Component) else component(one) for one in functions]
    if functions and all(isinstance(one, (str, os.PathLike)) for one in functions):
        return None
    raise UsageError(
        f"bisect() takes a script, a launch command or functions, not {type(target).__name__}.",
        'Write ddpnb.bisect("train.py", "--amp"), or ddpnb.bisect([prepare, train, evaluate], world=world).',
    )


def _check_by(by: str | None, others: bool) -> None:
    if by not in (None, STEPS):
        raise UsageError(
            f"there is no search by={by!r}.", "Write by='steps', or span='nproc=1..8' for a number of ranks."
        )
    if by is not None and others:
        raise UsageError(f"a search by {by} goes with no other search.", "Search one of them, then the next.")


def _of_functions(
    target: Callable[..., Any] | None,
    components: list[Component],
    args: tuple[Any, ...],
    world: World | None,
    by: str | None,
    repeat: int | None,
    confidence: float,
) -> Bisection:
    _check_by(by, repeat != 1)
    if world is None:
        raise UsageError("functions run on the ranks of a World.", "Write ddpnb.bisect(train, world=world).")
    prober = WorldProber(world, target, components, args)
    if by == STEPS:
        return StepsBisection(prober)
    if not components:
        raise UsageError(
            "the function has no components.",
            "Mark what can be left out with @ddpnb.component, or give a list of functions.",
        )
    space = SetSpace([Named(one.name, requires=one.requires) for one in components])
    return Bisection(Search(space, repeat, confidence), prober)
