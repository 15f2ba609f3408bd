"""The time account: a sentence, a table, bars in a page."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import TYPE_CHECKING

from ddpnb.recording import phrases
from ddpnb.recording.account import PARTS, Account, Parts, RankAccount, Straggler
from ddpnb.recording.timing.quantities import percent, span
from ddpnb.render import markup
from ddpnb.render.document import Block, Cell, Drawn, Group, Inline, Items, Paragraph, Table
from ddpnb.render.shown import Shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = 16  # ranks that are shown one by one
_LITTLE = 0.05  # of the time: not worth a sentence of its own
WORDS = {"compute": "compute", "waiting": "waiting", "communication": "comm.", "data": "data", "held": "held"}
_MEANING = {
    "compute": "computing, and everything else the script does",
    "waiting": "in a collective, before all ranks had arrived",
    "communication": "in a collective, after all ranks had arrived",
    "data": "in next() of a data loader",
    "held": "held before a call or a line",
}


class TimeAccount(Shown, Account):
    """An account that knows how to show itself."""

    __slots__ = ()

    @classmethod
    def of(cls, account: Account) -> TimeAccount:
        return cls(**{field.name: getattr(account, field.name) for field in dataclasses.fields(Account)})

    @property
    def headline(self) -> str:
        return headline(self)

    _label = "time account"

    def _document(self) -> list[Block]:
        return [document(self)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the time of each rank as a bar: seconds of compute, waiting, communication and data.

        Args:
            ax: Axes to draw on; None: those of a new figure, which a notebook shows.

        Returns:
            The Axes; ``ax.figure.savefig()`` saves the figure.

        Raises:
            UsageError: ``ax`` is something else.

        Example:
            >>> run.account.plot()
        """
        from ddpnb.render.figures.account import account

        return account(self, ax)


def headline(account: Account) -> str:
    """The account in a sentence."""
    held, parts = account.parts.held, dataclasses.replace(account.parts, held=0.0)
    if held > 0:
        without = tuple(
            dataclasses.replace(one, parts=dataclasses.replace(one.parts, held=0.0)) for one in account.ranks
        )
        sentence = headline(dataclasses.replace(account, ranks=without))
        return f"{sentence} They were held for {span(held / len(without))} on average, which is not counted here."
    if account.host_only:
        if not account.stragglers:
            return "The hosts of all ranks issued their calls at the same time."
        return f"The host of {_whom(account)} issued its calls later than the others{_where(account.stragglers[0])}."
    if parts.total <= 0:
        return "No collective, backward pass or optimizer step was recorded: there is nothing to report."
    shares = {part: parts.share(part) for part in PARTS}
    waiting = shares["waiting"]
    if waiting >= _LITTLE and account.stragglers:
        sentence = f"The ranks spent {percent(waiting)} of the time waiting, {_for_whom(account)}"
        rest = max(("data", "communication"), key=lambda part: shares[part])
        return sentence + (f"; {percent(shares[rest])} went into {rest}." if shares[rest] >= 2 * _LITTLE else ".")
    hardly = f"hardly waited for each other ({percent(waiting)})" if len(account.ranks) > 1 else ""
    most = max(("data", "communication"), key=lambda part: shares[part])
    if shares[most] >= 2 * _LITTLE:
        how = "waiting for data" if most == "data" else "communicating"
        sentence = f"The ranks spent {percent(shares[most])} of the time {how}"
    else:
        sentence = f"The ranks computed {percent(shares['compute'])} of the time"
    return f"{sentence} and {hardly}." if hardly else f"{sentence}."


def _for_whom(account: Account) -> str:
    where = _where(account.stragglers[0])
    if account.pattern == "turns":
        return f"for each other in turn{where}"
    return f"mostly for {_whom(account)}{where}"


def _whom(account: Account) -> str:
    if account.pattern != "some":
        return f"rank {account.stragglers[0].rank}"
    together, chosen = 0.0, list[int]()
    for straggler in account.stragglers[:4]:
        if together < 0.8:
            chosen.append(straggler.rank)
            together += straggler.share
    return phrases.ranks(chosen)


def _where(straggler: Straggler) -> str:
    site = straggler.sites[0][0] if straggler.sites else None
    return f" in {site}" if site is not None and site.line else ""


# -- all of it


def document(account: Account) -> Group:
    """The whole account: the parts of the time of each rank as numbers, and as a bar in a page."""
    shown, left = _shown(account)
    used = account.parts.parts
    rows: list[list[Inline | Cell]] = [[str(one.rank), _bar(one.parts), *_row(one, used)] for one in shown]
    if len(account.ranks) > 1:
        rows.append(["all", _bar(account.parts), "", *_shares(account.parts, used), "", "", ""])
    legend = "".join(
        f'<i class="{part}" aria-hidden="true"></i><span{markup.attributes({"title": meaning})}>{part}</span>'
        for part, meaning in _MEANING.items()
        if part in used
    )
    head = (
        "rank",
        Cell((Drawn(legend),), role="b"),
        "wall",
        *(WORDS[part] for part in used),
        "start, end",
        "CPU used",
        "steps",
    )
    blocks: list[Block] = [Paragraph(Drawn("", "ddpnb: "), headline(account), kind="summary")]
    blocks += [Paragraph(), Table("time of each rank", head, rows, kind="", right=True)] if shown else []
    blocks += [Paragraph(f"({left} more ranks are not shown)")] if left else []
    return Group((*blocks, Items([Paragraph(sentence) for sentence in _sentences(account)])), "account", indented=False)


def _bar(parts: Parts) -> Cell:
    shown = "".join(
        f'<span class="{part}" style="width:{parts.share(part) * 100:.2f}%"'
        f' title="{part} {markup.text(span(getattr(parts, part)))}"></span>'
        for part in parts.parts
    )
    shares = ", ".join(f"{part} {percent(parts.share(part))}" for part in parts.parts)
    return Cell((Drawn(f'<div class="bar" role="img" aria-label="{markup.text(shares)}">{shown}</div>'),), role="b")


def _shares(parts: Parts, names: tuple[str, ...]) -> list[str]:
    return [percent(parts.share(part)) if parts.total > 0 else "-" for part in names]


def _row(rank: RankAccount, names: tuple[str, ...]) -> tuple[str, ...]:
    used = percent(rank.utilisation) if rank.utilisation is not None else "-"
    return (span(rank.wall_s), *_shares(rank.parts, names), span(rank.other_s), used, str(rank.steps))


def _shown(account: Account) -> tuple[list[RankAccount], int]:
    """Stragglers and the first ranks, in rank order, and how many are left out."""
    if len(account.ranks) <= _ROWS:
        return list(account.ranks), 0
    wanted = {rank.rank for rank in account.stragglers[: _ROWS // 2]}
    for rank in account.ranks:
        if len(wanted) < _ROWS:
            wanted.add(rank.rank)
    return [rank for rank in account.ranks if rank.rank in wanted], len(account.ranks) - len(wanted)


def _sentences(account: Account) -> list[str]:
    """The sentences below the table."""
    sentences = [_of_straggler(one, account.host_only) for one in account.stragglers[:4] if one.share >= _LITTLE]
    steps = [one.step for one in account.ranks if one.step is not None]
    pace = account.steps_per_s
    if steps:
        step = Parts(*(median(getattr(one, part) for one in steps) for part in PARTS))
        times = ", ".join(f"{part} {span(getattr(step, part))}" for part in PARTS if getattr(step, part) > 0)
        sentences.append(f"a step (median): {times}" + (f"; {pace:.3g} steps a second" if pace is not None else ""))
    return [*sentences, *account.notes]


def _of_straggler(straggler: Straggler, host_only: bool) -> str:
    sites = ", ".join(f"{site}" for site, _ in straggler.sites[:2] if site.line)
    sentence = f"rank {straggler.rank}: the others {'arrived earlier by' if host_only else 'waited'} {span(straggler.waited_s)} in total"
    sentence += f" ({percent(straggler.share)} of {'the total delay' if host_only else 'the waiting'})"
    if sites:
        sentence += f", in {sites}"
    if straggler.times:
        sentence += f"; it was last at {straggler.times} collective{'s' * (straggler.times > 1)}"
    return sentence + (f"; {straggler.because}" if straggler.because else "")
