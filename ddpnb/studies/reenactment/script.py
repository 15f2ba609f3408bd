"""The script of a re-enactment: plain torch, for torchrun and for ``ddpnb run``.

A recording may come from strangers. Their texts get into the script in two ways only: in comments, as one line of ASCII, and
as literals in the places of names that stand for them. What Python will read is compared with what was meant.
"""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Iterable, Sequence

from ddpnb.errors import UsageError
from ddpnb.recording.calls import NO_SITE
from ddpnb.studies.reenactment.call_lines import text_of
from ddpnb.studies.reenactment.expressions import Case, base_name, one_of, ranks_are, ranks_are_not
from ddpnb.studies.reenactment.header import FIRST_LINES, header, instead
from ddpnb.studies.reenactment.plan import Part, Plan, Step
from ddpnb.studies.reenactment.program import Item, Line, Loop, program_of
from ddpnb.studies.reenactment.tensors import OPERATIONS
from ddpnb.texts import comment

TIMEOUT_S = 90  # of more than a minute: below that a program may count on its time-out, and ddpnb ends nothing
_ENDS_AFTER = 60  # seconds after the time-out until a rank that waits outside any call ends
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_TEXT, _GROUP = re.compile(r"text_(\d+)"), re.compile(r"group_\d+")
# What main() names, besides operations, groups and signals; the strings that it holds.
_NAMES = frozenset(
    re.findall(
        r"\w+",
        """_ _exit append async_op bfloat16 bool compute destroy_process_group dist dst dtype environ exit float16 float32 float64
        get getpid group group_desc init_process_group int int16 int32 int64 int8 irecv isend kill leave main new_group ones op os
        range rank signal sleep src step t tag time timeout torch uint8 wait wait_elsewhere work works
        ReduceOp AVG BAND BOR BXOR MAX MIN PRODUCT SUM RuntimeError TIMEOUT""",
    )
)
_STRINGS = frozenset({"RANK", "gloo"})
_MODULES = ("os", "signal", "threading", "time")
_IMPORTS = "from datetime import timedelta\n\nimport torch\nimport torch.distributed as dist\n"
_HELPERS = (
    '''
def leave():
    """This rank makes no further call. Its connections stay open, as NCCL's would: gloo's end with the process."""
    if "DDPNB_FOLDER" not in os.environ:  # set by ddpnb, which sees the end of a rank
        time.sleep(TIMEOUT.total_seconds() + {after})
''',
    '''
def wait_elsewhere():
    """This rank is blocked outside any collective."""
    threading.Event().wait()
''',
    '''
def compute():
    """This rank computes for as long as the others may wait."""
    until = time.monotonic() + TIMEOUT.total_seconds()
    while time.monotonic() < until:
        torch.ones(64, 64).mm(torch.ones(64, 64))
''',
)


def script_of(plan: Plan, name: str = "a recording", timeout_s: int = TIMEOUT_S, file: str = "repro.py") -> str:
    """The text of the script.

    Args:
        plan: who calls what.
        name: of the report, for people.
        timeout_s: after which the calls give up.
        file: the name of the script, for people.
    """
    return _Writer(plan, name, timeout_s, file).text()


Chain = list[list[Line]]  # branches of one decision, each a list of lines


class _Writer:
    def __init__(self, plan: Plan, name: str, timeout_s: int, file: str) -> None:
        self._plan, self._name, self._timeout_s, self._file = plan, name, timeout_s, file
        self._parts = {part.rank: part for part in plan.parts}
        self._lines: list[tuple[str, str]] = []  # code, and the comment behind it
        self._texts: list[str] = []  # of the recording; the code has the names text_0, text_1 … in their places
        self._here = frozenset(self._parts)  # the live ranks that come to the next line
        self._left = {part.rank: len(part.steps) for part in plan.parts}

    def text(self) -> str:
        self._main()
        body = "\n".join(code for code, _ in self._lines)
        used = [helper for helper in _HELPERS if helper.partition("(")[0].split()[-1] + "()" in body]
        helpers = "".join(f"\n{helper.format(after=_ENDS_AFTER)}" for helper in used)
        modules = "".join(f"import {name}\n" for name in _MODULES if re.search(rf"\b{name}\.", body + helpers))
        imports = modules + _IMPORTS
        before = f"{imports}\nTIMEOUT = timedelta(seconds={self._timeout_s})\n{helpers}\n\n"
        after = '\n\n\nif __name__ == "__main__":\n    main()\n'
        head = "".join(f"{line}\n" for line in header(self._plan, self._name, self._timeout_s, self._file))
        filled = "\n".join(
            _TEXT.sub(lambda name: ascii(self._texts[int(name[1])]), code) + (f"  # {note}" if note else "")
            for code, note in self._lines
        )
        script = f"{FIRST_LINES}{head}{before}def main():\n{filled}{after}"
        self._check(script, f"{before}def main():\n{body}{after}", f"def main():\n{body}")
        return script

    def _check(self, script: str, meant: str, main: str) -> None:
        """Check that Python reads the script as what was meant: only names of ours, and texts as nothing but literals.

        Raises:
            UsageError: it does not.
        """
        texts = self._texts

        class Filled(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                name = _TEXT.fullmatch(node.id)
                return ast.Constant(texts[int(name[1])]) if name else node

        try:
            same = ast.dump(ast.parse(script.encode())) == ast.dump(Filled().visit(ast.parse(meant)))
            ours = all(map(_is_ours, ast.walk(ast.parse(main))))
        except (ValueError, SyntaxError, RecursionError, MemoryError, LookupError):
            same = ours = False
        if not (same and ours):
            raise UsageError(
                "the calls of this recording do not make the script that was meant: nothing is written.",
                "Read the recording with ddpnb diagnose, and please report this.",
            )

    # -- code

    def _add(self, depth: int, code: str, note: str = "") -> None:
        self._lines.append(("    " * depth + code, note))

    def _text(self, text: str) -> str:
        """The name that stands for a text of the recording."""
        self._texts.append(text)
        return f"text_{len(self._texts) - 1}"

    def _main(self) -> None:
        plan = self._plan
        self._add(1, 'rank = int(os.environ["RANK"])')
        self._endings(1, [part for part in plan.parts if part.absent])
        self._add(1, 'dist.init_process_group("gloo", timeout=TIMEOUT)')
        for group in plan.groups[1:]:
            label = f", group_desc={self._text(group.group.label)}" if _LABEL.fullmatch(group.group.label) else ""
            code = f"{group.name} = dist.new_group({list(group.ranks)}, timeout=TIMEOUT{label})"
            self._add(1, code, "" if label else comment(str(group.group)))
        if any(step.mode == "issue" for part in plan.parts for step in part.steps):
            self._add(1, "works = []")
        self._endings(1)
        for chain in self._chains(program_of(plan)):
            if isinstance(chain, Loop):
                self._loop(chain)
            else:
                self._chain(chain)
            self._endings(1)

    def _chains(self, items: Sequence[Item]) -> list[Loop | Chain]:
        """Loops, and between them the branches of decisions: each rank comes to the lines of one branch at most."""
        found: list[Loop | Chain] = []
        for item in items:
            last = found[-1] if found else None
            if isinstance(item, Loop):
                found.append(item)
            elif isinstance(last, list) and last[-1][-1].ranks == item.ranks:
                last[-1].append(item)
            elif isinstance(last, list) and self._decided(last, item):
                last.append([item])
            else:
                found.append([[item]])
        return found

    def _decided(self, chain: Chain, line: Line) -> bool:
        """Whether a line and those before it are made by different ranks, and none follows another one in the source."""
        return not self._plan.ordered and all(branch[0].ranks.isdisjoint(line.ranks) for branch in chain)

    def _loop(self, loop: Loop) -> None:
        times = {(rank, 0): str(loop.times.get(rank, 0)) for rank in sorted(self._here)}
        header = len(self._lines)
        self._add(1, f"for step in range({one_of(times)}):")
        before = ""
        for j in range(loop.last_line):
            column = [(i, line) for i, one in enumerate(loop.passes) if (line := one[j]) is not None]
            condition = self._condition_in(loop, j, column)
            if condition and condition != before:
                self._add(2, f"if {condition}:")
            self._call(3 if condition else 2, column)
            before = condition
        for one in loop.passes:
            for line in one:
                if line is not None:
                    self._passed(line)
        if not any("step" in code for code, _ in self._lines[header + 1 :]):
            code, note = self._lines[header]
            self._lines[header] = code.replace("for step in", "for _ in"), note

    def _chain(self, chain: Chain) -> None:
        """Write the branches of one decision."""
        rest = self._here
        for number, branch in enumerate(chain):
            own = branch[0].ranks & self._here
            condition = (
                "" if own == rest else ranks_are(own) if 2 * len(own) <= len(rest) else ranks_are_not(rest - own)
            )
            if number and not condition:
                self._add(1, "else:")
            elif condition:
                self._add(1, f"{'elif' if number else 'if'} {condition}:")
            for line in branch:
                self._call(1 + bool(number or condition), [(0, line)])
            rest -= own
        for branch in chain:
            for line in branch:
                self._passed(line)

    def _condition_in(self, loop: Loop, j: int, column: Sequence[tuple[int, Line]]) -> str:
        """Which ranks come to line j of a loop in which iterations; empty: all in all."""
        lines = dict(column)
        absent = [
            (i, rank)
            for i in range(len(loop.passes))
            for rank in sorted(self._here)
            if not (i in lines and rank in lines[i].steps)
            and i < loop.times.get(rank, 0)
            and not self._blocked_before(loop, rank, i, j)
        ]
        if not absent:
            return ""
        ranks, steps = {rank for _, rank in absent}, {i for i, _ in absent}
        if all((i, rank) in absent for rank in ranks for i in range(loop.times.get(rank, 0))):
            return ranks_are_not(ranks) if 2 * len(ranks) <= len(self._here) else ranks_are(self._here - ranks)
        if ranks == self._here and len(absent) == len(ranks) * len(steps):
            return f"step != {min(steps)}" if len(steps) == 1 else f"step not in {tuple(sorted(steps))}"
        return f"(step, rank) not in {absent}"

    def _blocked_before(self, loop: Loop, rank: int, iteration: int, j: int) -> bool:
        """Whether a rank is blocked in a loop before it comes to line j in this iteration."""
        own = [
            (i, place)
            for i, one in enumerate(loop.passes)
            for place, line in enumerate(one)
            if line is not None and rank in line.steps
        ]
        blocked = self._parts[rank].how == "blocked" and self._finished_in(loop, rank)
        return blocked and bool(own) and max(own) < (iteration, j)

    def _finished_in(self, loop: Loop, rank: int) -> bool:
        """Whether the last step of a rank is in this loop."""
        inside = sum(rank in line.steps for one in loop.passes for line in one if line is not None)
        return self._left[rank] == inside

    def _call(self, depth: int, branch: Sequence[tuple[int, Line]]) -> None:
        """Write a line, as it is in each iteration."""
        cases = {(rank, i): step for i, line in branch for rank, step in line.steps.items()}
        by_op: dict[str, dict[Case, Step]] = {}
        for case, step in cases.items():
            by_op.setdefault(step.given.op if step.given is not None else "", {})[case] = step
        for same in by_op.values():
            if any(step.late for step in same.values()):
                self._add(depth, "time.sleep(0.5)", "until the Work of the send is discarded")
            self._add(depth, text_of(same, self._plan.groups), self._original(same.values()))

    def _original(self, steps: Iterable[Step]) -> str:
        """Where the recorded calls were made, and which they were."""
        steps = list(steps)
        sites = [step.site for step in steps if step.site != NO_SITE]
        places = list(dict.fromkeys(f"{base_name(site.file)}:{site.line}" for site in sites))
        titles = list(dict.fromkeys(step.title for step in steps))
        shown = titles[:1] if len(titles) == 1 else [titles[0], "to" if len(titles) > 2 else "and", titles[-1]]
        return comment(": ".join([*places[:1], " ".join(shown)]))

    def _passed(self, line: Line) -> None:
        for rank in line.steps:
            self._left[rank] -= 1
            part = self._parts[rank]
            if not self._left[rank] and part.how == "blocked" and part.steps[-1].mode == "call":
                self._here -= {rank}

    # -- what ranks do after their calls

    def _endings(self, depth: int, parts: Sequence[Part] | None = None) -> None:
        """What ranks do that have no further step: of these, or of all."""
        ended = [part for rank, part in self._parts.items() if rank in self._here and not self._left[rank]]
        ended = ended if parts is None else list(parts)
        alike: dict[tuple[object, ...], list[Part]] = {}
        for part in ended:
            alike.setdefault((part.how, part.code, part.message, part.waits_in is not None), []).append(part)
        for those in alike.values():
            self._ending(depth, those)
            self._here -= {part.rank for part in those}

    def _ending(self, depth: int, parts: Sequence[Part]) -> None:
        first, ranks = parts[0], {part.rank for part in parts}
        inner = depth
        if first.how == "blocked" and not first.steps:
            return  # it waits in init_process_group
        if ranks != self._here:
            self._add(depth, f"if {ranks_are(ranks)}:", "" if first.how == "blocked" else comment(instead(first)))
            inner = depth + 1
        if first.how == "blocked":
            self._waits(inner, parts)
        else:
            self._add(inner, self._after(first))
        if inner > depth and first.how not in ("raised", "died"):
            self._add(inner, "return")

    def _after(self, part: Part) -> str:
        """The statement for what a rank does after its calls."""
        match part.how:
            case "raised":
                return f"raise RuntimeError({self._text(part.message[:300])})"
            case "died" if part.code < 0:
                return f"os.kill(os.getpid(), {_signal(part.code)})"
            case "died":
                return f"os._exit({max(1, min(part.code, 255))})"
            case "elsewhere":
                return "wait_elsewhere()"
            case "stopped":
                return "os.kill(os.getpid(), signal.SIGSTOP)"
            case "computing":
                return "compute()"
            case _:
                return "dist.destroy_process_group()" if self._plan.completes else "leave()"

    def _waits(self, depth: int, parts: Sequence[Part]) -> None:
        """Wait for what was issued: first for the call that the ranks wait in."""
        first = {part.rank: _work(part) for part in parts}
        if any(first.values()):
            self._add(depth, f"works[{one_of({(rank, 0): str(place) for rank, place in first.items()})}].wait()")
        self._add(depth, "for work in works:")
        self._add(depth + 1, "work.wait()")


def _is_ours(node: ast.AST) -> bool:
    """Whether a part of main() holds only what scripts of ours do."""
    if isinstance(node, ast.Constant):
        return node.value is None or type(node.value) in (int, float, bool) or node.value in _STRINGS
    for name in (getattr(node, key, None) for key in ("id", "attr", "name", "arg")):
        if (
            isinstance(name, str)
            and name not in _NAMES | OPERATIONS
            and not (
                _TEXT.fullmatch(name) or _GROUP.fullmatch(name) or (name.startswith("SIG") and hasattr(signal, name))
            )
        ):
            return False
    return not isinstance(node, (ast.Import, ast.ImportFrom, ast.Lambda, ast.NamedExpr, ast.JoinedStr))


def _work(part: Part) -> int:
    """The place in ``works`` of the call that a rank waits in."""
    if part.waits_in is None:
        return 0
    return sum(step.mode == "issue" for step in part.steps[: part.waits_in])


def _signal(code: int) -> str:
    try:
        return f"signal.{signal.Signals(-code).name}"
    except ValueError:
        return "signal.SIGKILL"
