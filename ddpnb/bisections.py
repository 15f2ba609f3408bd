"""``ddpnb.bisect``: what makes a script, a launch command or a function fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ddpnb.bisection.command import CommandSpace
from ddpnb.bisection.command_line import number_of_ranks, script_place
from ddpnb.bisection.functions import FunctionSpace, PrefixSpace, RanksSpace, numbered, ranks_to_search
from ddpnb.bisection.proposals import by_name, proposed, suggested
from ddpnb.bisection.results import Trial
from ddpnb.bisection.search import Search
from ddpnb.bisection.space import Component as Named
from ddpnb.bisection.varied import Varied
from ddpnb.control.bisecting import Bisection
from ddpnb.control.bisection_log import read_log
from ddpnb.control.locating import LOCATORS, Loaded, ModulesBisection, RecordedBisection
from ddpnb.control.probing import Job, Prober
from ddpnb.control.run_requests import check_script, check_terms
from ddpnb.control.worktrees import Repository
from ddpnb.errors import UsageError
from ddpnb.model.recording import Recording
from ddpnb.processes import devices
from ddpnb.processes.environment import working_directory
from ddpnb.recorder.components import Component, called_components, component
from ddpnb.render.bisection import trial as line
from ddpnb.source.options import declared
from ddpnb.texts import shell_word
from ddpnb.world import World
from ddpnb.world_probes import RanksProber, WorldProber

RANKS = "ranks"  # a search by probes; the others by are read from a recording
Parts = Callable[..., Any] | Sequence[Callable[..., Any]]


def bisect(
    target: str | os.PathLike[str] | Parts | Sequence[str] | Recording,
    *args: Any,
    world: World | None = None,
    n: int | None = None,
    vary: Sequence[str] = (),
    env: Sequence[str] = (),
    span: str | None = None,
    git: str | None = None,
    ladder: bool = False,
    in_order: bool = False,
    by: str | None = None,
    repeat: int | None = 1,
    confidence: float = 0.99,
    backend: str | None = None,
    patience: float = 10.0,
    fork: bool = False,
    jobs: int = 1,
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
        vary: options of the script: ``"amp"`` is there or not; ``"workers=0|4"`` has a harmless and a failing value,
            and may have others in order between them.
            By default all of its options.
        env: environment variables, ``"NAME=HARMLESS|FAILING"``; an empty value means not set.
        span: ``"NAME=LOW..HIGH"``: the first value of an option that fails.
        git: ``"GOOD..BAD"``: the first commit that fails, each in a checkout of its own.
        ladder: begin with a single process without options, then all ranks, data, data workers, precision, evaluation and
            logging, everything; the first of these that fails is narrowed down.
        by: ``"steps"``: the first optimizer step at which the replicas differ, read from the recording of one run, and of
            a second one that looks at each step where the first did not. ``"checkpoints"``: the numbered checkpoints
            between which it fails, read alike. For both, ``target`` may also be a recording.
            ``"modules"``: the first module whose output differs in the first forward, else the first gradient in the first
            backward, between ranks that had the same batch and from a run with one rank.
            ``"ranks"``: the smallest number of ranks that fails; functions run in Worlds of so many ranks.
        in_order: of a list of functions, find the first one whose addition to those before it makes it fail.
        repeat: how many times a configuration has to work to count as good; None: as often as ``confidence`` needs.
        confidence: wanted for a failure that does not always happen.
        backend, patience: as for ``launch()``.
        fork: start the ranks of a script sooner, as ``ddpnb run --fork``.
        jobs: how many probes of a script or a command run at the same time.
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
    check_terms("raise", patience)
    size = n if n is not None else devices.count_gpus() or 2
    job = Job(isinstance(target, (str, os.PathLike)), False, size, backend, patience, fork, jobs)
    varied = (vary, env, span, git, ladder)
    if by is not None:
        if any(varied) or in_order or repeat != 1 or jobs != 1:
            raise UsageError(f"by={by!r} goes with no other search.", "Search one of them, then the next.")
        bisection = _by(by, target, args, job, world, confidence, log)
    elif (parts := _parts(target)) is not None:
        if jobs != 1:
            raise UsageError(
                "jobs is for a script or a command.", "The ranks of a World run one probe after the other."
            )
        bisection = _of_functions(parts, args, world, varied, repeat, confidence, in_order)
    else:
        if in_order:
            raise UsageError("in_order is for a list of functions.", "Of a command, options are varied.")
        bisection = _of_command(target, args, job, varied, repeat, confidence, log)
    if run:
        bisection.run(None if quiet else lambda one: print(_line(one, bisection), flush=True))
    return bisection


def _line(one: Trial, bisection: Bisection) -> str:
    return line(one, len(bisection.trials), bisection.left, bisection.search)


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


def _by(
    by: str, target: Any, args: tuple[Any, ...], job: Job, world: World | None, confidence: float, log: Any
) -> Bisection:
    if by not in LOCATORS and by != RANKS:
        raise UsageError(f"there is no search by={by!r}.", f"Write one of {', '.join((*LOCATORS, RANKS))}.")
    if isinstance(target, Recording):
        if by == RANKS:
            raise UsageError("a recording is of one world.", "Search by ranks with the program itself.")
        return RecordedBisection(by, Loaded(target), once=True)
    parts = _parts(target)
    if parts is None:
        if by == RANKS:
            size = job.size if job.script else number_of_ranks(list(map(os.fsdecode, target)))
            span = f"nproc=1..{ranks_to_search(size)[-1]}"
            return _of_command(target, args, job, ((), (), span, None, False), 1, confidence, log)
        command = _command_of(target, args, job)
        if by == "modules":
            return ModulesBisection(Prober(job), command, job.script, reference=job.script and job.size > 1)
        return RecordedBisection(by, Prober(job), command, job.script)
    function, components = parts
    if world is None:
        raise UsageError("functions run on the ranks of a World.", "Write ddpnb.bisect(train, world=world).")

    def prober(on: World) -> WorldProber:
        return WorldProber(on, function, components, args, in_order=function is None)

    names = [one.name for one in components]
    if by == RANKS:
        space = RanksSpace(names, world.size)
        return Bisection(space, Search(space.space, 1, confidence), RanksProber(world, prober))
    if by == "modules":
        return ModulesBisection(RanksProber(world, prober), names, reference=world.size > 1)
    return RecordedBisection(by, prober(world), names)


def _command_of(target: Any, args: tuple[Any, ...], job: Job) -> list[str]:
    """The script or launch command with its arguments.

    Raises:
        ScriptNotFound: the script does not exist.
        DeviceError: there are not as many devices.
    """
    command = [*([os.fsdecode(target)] if job.script else map(os.fsdecode, target)), *map(str, args)]
    if job.script:
        check_script(command[0])
        devices.plan(job.size, job.backend)
    return command


def _of_command(
    target: Any, args: tuple[Any, ...], job: Job, varied: Any, repeat: int | None, confidence: float, log: Any
) -> Bisection:
    vary, env, span, git, ladder = varied
    command = _command_of(target, args, job)
    repository, commits = None, list[str]()
    if git is not None:
        repository = Repository(working_directory())
        commits = repository.commits(git)
    options = declared(command[script_place(command, launcher=not job.script)])
    rungs = job.size if ladder else None
    space = CommandSpace(command, vary, env, span, commits, own=job.script, declared=options, ladder=rungs)
    kept = {
        "nproc": job.size if job.script else None, "backend": job.backend, "patience": job.patience, "fork": job.fork,
        "module": False, "vary": list(vary), "env": list(env), "range": span, "git": git, "ladder": ladder,
        "confidence": confidence,
        "repeat": "auto" if repeat is None else str(repeat), "command": command, "launcher": not job.script,
    }  # fmt: skip
    search = Search(space.space, repeat, confidence)
    return Bisection(space, search, Prober(job, repository), None if log is None else os.fspath(log), kept)


def _of_functions(
    parts: tuple[Callable[..., Any] | None, list[Component]],
    args: tuple[Any, ...],
    world: World | None,
    varied: tuple[Any, ...],
    repeat: int | None,
    confidence: float,
    in_order: bool,
) -> Bisection:
    if world is None:
        raise UsageError("functions run on the ranks of a World.", "Write ddpnb.bisect(train, world=world).")
    if any(varied):
        raise UsageError("vary, env, span, git and ladder are for scripts.", "Of functions, components are varied.")
    target, components = parts
    if in_order:
        if target is not None:
            raise UsageError(
                "in_order is for a list of functions.", "Write ddpnb.bisect([load, train], in_order=True)."
            )
        components = [
            one if one.name == name else Component(one, name, ())
            for one, name in zip(components, numbered([one.name for one in components]), strict=True)
        ]
        first = PrefixSpace([one.name for one in components])
        return Bisection(first, Search(first.space, repeat, confidence), WorldProber(world, None, components, (), True))
    if not components:
        raise UsageError(
            "the function has no components.",
            "Mark what can be left out with @ddpnb.component, or give a list of functions.",
        )
    space = FunctionSpace([Named(one.name, requires=one.requires) for one in components])
    return Bisection(space, Search(space.space, repeat, confidence), WorldProber(world, target, components, args))


def is_script(command: Sequence[str]) -> bool:
    """Whether a command line begins with a script, which ddpnb starts; else it is a launch command."""
    return command[0].endswith(".py")


def proposals(command: Sequence[str]) -> tuple[list[Varied], list[Varied]]:
    """What may be varied of a command: options that are on it, and what is not on it but may be the cause.

    Raises:
        ScriptNotFound: the script does not exist.
    """
    script = is_script(command)
    if script:
        check_script(command[0])
    options = by_name(declared(command[script_place(command, launcher=not script)]))
    return proposed(command, options, own=script), suggested(command, options)


def continued(path: str) -> Bisection:
    """A search that a log continues.

    Raises:
        UsageError: it is not such a log, or of another version.
    """
    log = read_log(path)
    options = log["options"]
    try:
        command = [str(one) for one in options["command"]]
        script, repeat = not options["launcher"], options["repeat"]
        if options["module"]:
            raise UsageError(
                "this search runs a module.", f"Continue it with: ddpnb bisect --resume {shell_word(os.fspath(path))}"
            )
        bisection = bisect(
            command[0] if script else command,
            *(command[1:] if script else ()),
            n=options["nproc"], backend=options["backend"], patience=options["patience"], fork=bool(options["fork"]),
            vary=options["vary"], env=options["env"], span=options["range"], git=options["git"],
            ladder=bool(options["ladder"]), repeat=None if repeat == "auto" else int(repeat),
            confidence=options["confidence"], log=path, run=False,
        )  # fmt: skip
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UsageError("this is not the log of a search.", "Give the file that a search has written.") from error
    bisection.resume(log)
    return bisection
