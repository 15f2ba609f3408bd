"""The statement of the script for a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ddpnb.studies.reenactment.expressions import Case, one_of
from ddpnb.studies.reenactment.plan import LiveGroup, Step
from ddpnb.studies.reenactment.tensors import OPERATIONS, Small, Tensor

Given = Callable[[Callable[[Step, Small], str]], str]
_USUAL = "torch.float32"
_DTYPES = frozenset({"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool"})
_LISTS = {
    "all_gather": "dist.all_gather({list}, {x}{more})",
    "reduce_scatter": "dist.reduce_scatter({x}, {list}{more})",
    "all_to_all": "dist.all_to_all({list}, {list}{more})",
    "gather": "dist.gather({x}, {list} if rank == {root} else None{more})",
    "scatter": "dist.scatter({x}, {list} if rank == {root} else None{more})",
    "all_gather_into_tensor": "dist.all_gather_into_tensor({whole}, {x}{more})",
    "reduce_scatter_tensor": "dist.reduce_scatter_tensor({x}, {whole}{more})",
}
_ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}


def text_of(cases: Mapping[Case, Step], groups: Sequence[LiveGroup]) -> str:
    """The statement for a call, on one line.

    Args:
        cases: the step of each live rank, in each iteration of the loop around the line; all of one operation.
        groups: of the plan.
    """
    steps = list(cases.values())
    first = steps[0]
    if first.given is None:
        members = one_of({case: str(list(step.ranks)) for case, step in cases.items()})
        return f"dist.new_group({members}, timeout=TIMEOUT)"
    op = first.given.op
    if op not in OPERATIONS:
        raise ValueError(op)

    def given(value: Callable[[Step, Small], str]) -> str:
        return one_of({case: value(step, step.given) for case, step in cases.items() if step.given is not None})

    more = ""
    if any(step.group for step in steps):
        more += f", group={given(lambda step, _: groups[step.group].name or 'None')}"
    if op in _ROOTS:
        more += f", {_ROOTS[op]}={given(lambda step, _: str(step.root or 0))}"
    if any(step.given is not None and step.given.reduce_op != "sum" for step in steps):
        more += f", op={given(lambda _, small: f'dist.ReduceOp.{small.reduce_op.upper()}')}"
    later = any(step.mode == "issue" for step in steps)
    if op in ("send", "recv", "recv_any_source"):
        return _message(op, given, more, later, steps)
    if op == "monitored_barrier":
        return f"dist.monitored_barrier({(more + ', timeout=TIMEOUT')[2:]})"
    if later:
        more += ", async_op=True"
    x = _input(given)
    size = given(lambda step, _: str(len(groups[step.group].ranks)))
    if op == "barrier":
        call = f"dist.barrier({more[2:]})"
    elif op == "all_to_all_single":
        call = _all_to_all(given, more, groups)
    elif op in _LISTS:
        whole = _tensor(
            given(lambda step, small: str(small.tensor.elements * len(groups[step.group].ranks))), given(_dtype)
        )
        root = given(lambda step, _: str(step.root or 0))
        root = f"({root})" if " " in root else root
        call = _LISTS[op].format(x=x, list=f"[{x} for _ in range({size})]", whole=whole, root=root, more=more)
    else:
        call = f"dist.{op}({x}{more})"
    return f"works.append({call})" if later else call


def _dtype(_: Step, small: Small) -> str:
    return f"torch.{small.tensor.dtype}" if small.tensor.dtype in _DTYPES else _USUAL


def _input(given: Given) -> str:
    """The tensor that a rank gives."""
    whole = given(lambda _, small: "turned" if small.tensor.turned else "")
    if not whole:
        return _tensor(given(lambda _, small: str(small.tensor.elements)), given(_dtype))
    return given(lambda step, small: _turned(small.tensor, _dtype(step, small)))


def _tensor(elements: str, dtype: str) -> str:
    return f"torch.ones({elements})" if dtype == _USUAL else f"torch.ones({elements}, dtype={dtype})"


def _turned(tensor: Tensor, dtype: str) -> str:
    """A tensor that is not contiguous, if this one is not."""
    if not tensor.turned:
        return _tensor(str(tensor.elements), dtype)
    rows = next((rows for rows in range(2, 64) if tensor.elements % rows == 0 and tensor.elements > rows), 0)
    if not rows:
        return f"{_tensor(str(2 * tensor.elements), dtype)}[::2]"
    return f"{_tensor(f'{rows}, {tensor.elements // rows}', dtype)}.t()"


def _message(op: str, given: Given, more: str, later: bool, steps: Sequence[Step]) -> str:
    x = _tensor(given(lambda _, small: str(small.tensor.elements)), given(_dtype))
    dropped = any(step.mode == "drop" for step in steps)
    name = "send" if op == "send" else "recv"
    peer = f", {'dst' if op == 'send' else 'src'}={given(lambda step, _: str(step.peer))}"
    peer = "" if op == "recv_any_source" else peer
    tag = f", tag={given(lambda step, _: str(step.tag))}" if any(step.tag for step in steps) else ""
    call = f"dist.{'i' if later or dropped else ''}{name}({x}{peer}{tag}{more})"
    return f"works.append({call})" if later else call


def _all_to_all(given: Given, more: str, groups: Sequence[LiveGroup]) -> str:
    def total(step: Step, small: Small, splits: tuple[int, ...]) -> int:
        size = len(groups[step.group].ranks)
        return sum(splits) if len(splits) == size else size * max(1, small.tensor.elements // size)

    def listed(step: Step, splits: tuple[int, ...]) -> str:
        return str(list(splits)) if len(splits) == len(groups[step.group].ranks) else "None"

    tensors = [
        _tensor(given(lambda step, small, which=which: str(total(step, small, getattr(small, which)))), given(_dtype))
        for which in ("out_splits", "in_splits")
    ]
    splits = [
        given(lambda step, small, which=which: listed(step, getattr(small, which)))
        for which in ("out_splits", "in_splits")
    ]
    shown = "" if splits == ["None", "None"] else f", {splits[0]}, {splits[1]}"
    return f"dist.all_to_all_single({tensors[0]}, {tensors[1]}{shown}{more})"
