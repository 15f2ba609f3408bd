"""A bisection as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.timing.quantities import span
from ddpnb.studies.bisection.search import Search, SearchResult, Trial
from ddpnb.studies.bisection.space import AS_GIVEN, Component, Probe, RangeSpace, Value
from ddpnb.texts import printable, relative

WORDS = {"bad": "fails", "good": "works", "other": "fails otherwise", "skip": "skipped"}
_SHOWN = 8  # candidates
_LONGEST = 200


def named(probe: Probe, search: Search) -> str:
    """A configuration in words.

    Example:
        >>> named(Probe(("--amp",)), search)
        'with --amp alone'
    """
    space = search.space
    if isinstance(space, RangeSpace):
        return AS_GIVEN if probe.at == AS_GIVEN else f"{space.name} {_short(probe.at, space)}"
    if probe == space.start:
        return "as given"
    if not probe.on and space.rungs:
        return "rung 1, a single process" if space.rungs[0][0] == "all ranks" else "rung 1, no options"
    rungs = [(title, rung) for title, rung in space.cumulative() if rung == probe]
    if rungs:
        return f"rung {2 + space.cumulative().index(rungs[0])}, {rungs[0][0]}"
    if not probe.on:
        return "with none of them" if len(space.names) > 1 else f"without {space.components[0].name}"
    off = [name for name in space.names if name not in probe.on]
    if len(off) < len(probe.on):
        return f"without {', '.join(off)}"
    return f"with {', '.join(probe.on)} alone"


def trial(one: Trial, number: int, expected: int, search: Search) -> str:
    """A probe that was answered, as a line.

    Args:
        one: the probe.
        number: how many there have been.
        expected: how many more are expected.
        search: that has asked for it.
    """
    again = " again" if any(earlier.probe == one.probe for earlier in search.trials[: number - 1]) else ""
    left = f" of about {number + expected}" if expected else ""
    code = f" with {one.code}" if one.code and one.answer == "other" else ""
    why = f" ({relative(one.reason)})" if one.reason and (one.answer != "bad" or number == 1) else ""
    took = f", {span(one.seconds)}" if one.seconds else ""
    text = f"probe {number}{left}: {named(one.probe, search)}{again}: {WORDS[one.answer]}{code}{took}{why}"
    return printable(text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "...")


def log(search: Search) -> str:
    """The probes that were answered, a line each."""
    return "\n".join(trial(one, number, 0, search) for number, one in enumerate(search.trials, 1))


def conclusion(result: SearchResult, search: Search) -> str:
    """What was found, in one or a few sentences."""
    space, rate = search.space, search.rate
    tried = rate.bad + rate.good
    if result.outcome == "nothing fails":
        more = "" if search.sometimes else " If it fails only sometimes, add --repeat auto."
        return f"Nothing fails: the command as given works.{more}"
    if result.outcome == "always fails":
        what = f"{space.name} {space.values[0]}" if isinstance(space, RangeSpace) else "none of them"
        return f"It fails with {what} too: the cause lies elsewhere. Vary something else."
    if result.seldom:
        return (
            f"Undecided: the same command failed in {rate.bad} of {tried} probes, which is too seldom to search. If it was "
            "the first of them, that one may have left something behind which prevents it, such as a checkpoint."
        )
    sure = (
        f" It has failed in {rate.bad} of the {tried} probes where it can; confidence {search.stated_confidence:.3f}."
        if search.sometimes
        else ""
    )
    if isinstance(space, RangeSpace):
        return _of_values(result, space, sure)
    if result.outcome == "undecided":
        return "Undecided: no configuration besides the command as given could be judged."
    lines = [f"It fails with {_together(space.shown(result.minimal))}.{sure}"]
    lines += [f"Independently of that, it fails with {_together(space.shown(cause))}." for cause in result.causes[1:]]
    found = {name for cause in result.causes for name in cause}
    others = [name for name in space.names if not found & set(space.probe([name]).on)]
    if others and any(one.answer == "good" and set(others) <= set(one.probe.on) for one in search.trials):
        lines.append(f"It works with the others: {', '.join(others)}.")
    judged = {one.probe for one in search.trials if one.answer in ("bad", "good")}
    n = len({one.probe for one in search.trials} - judged)
    if n:
        what = "a smaller set" if len(result.minimal) > 1 else "further causes"
        lines.append(f"{n} configuration{'s' * (n > 1)} could not be judged: there may be {what}.")
    return "\n".join(lines)


def _of_values(result: SearchResult, space: RangeSpace, sure: str) -> str:
    last_good = _short(result.last_good, space)
    if result.outcome == "found":
        return f"It fails from {space.name} {_short(result.first_bad, space)} on; {last_good} works.{sure}"
    *between, last = (_short(one, space) for one in result.candidates)
    shown = ", ".join(between[:_SHOWN]) + ", ..." * (len(between) > _SHOWN)
    works = f"{last_good} works and " if result.last_good is not None else ""
    return f"Undecided: {works}{last} fails; those between could not be judged: {shown}."


def _short(value: Value | None, space: RangeSpace) -> str:
    return str(value)[:10] if space.kind == "git" else str(value)


def _together(components: Sequence[Component]) -> str:
    names = [str(one) for one in components]
    return f"{', '.join(names[:-1])} and {names[-1]} together" if len(names) > 1 else f"{names[0]} alone"
