"""DDP108, 303-305, 307: arguments that are wrong whatever the other ranks pass."""

from __future__ import annotations

import re

from ddpnb.rules.messages.explained import Explained, Raised

# The text, the code, what is wrong, what to do.
_ARGUMENTS: tuple[tuple[re.Pattern[str], str, str, str], ...] = (
    (
        re.compile(r"invalid output tensor list at index \d{1,9} \(expected length (\d{1,9}), got (\d{1,9})\)"),
        "DDP305",
        "The output list has length {1}, but the group has {0} ranks.",
        "One tensor per rank: [torch.empty_like(x) for _ in range(dist.get_world_size())].",
    ),
    (
        re.compile(r"invalid tensor size at index \d{1,9} \(expected \(([^)]{0,200})\), got \(([^)]{0,200})\)\)"),
        "DDP303",
        "A tensor of the call has size [{1}]; [{0}] is required.",
        "The tensors of a gather must have one size on all ranks: pad them, or use all_gather_object.",
    ),
    (
        re.compile(
            r"outputShape\[0\] \* worldSize == inputShape\[0\] \((\d{1,19}) vs\. (\d{1,19})\)"
            r"|(?:output tensor size must be equal to world_size times input tensor size|input tensor must be the same size as "
            r"output size times world size|does not divide equally across group size)"
        ),
        "DDP303",
        "The tensor cannot be split evenly over the ranks of the group.",
        "Its first dimension must be the number of ranks times that of one part: pad it.",
    ),
    (
        re.compile(r"Split sizes doesn't match total dim 0 size|Number of tensor splits not equal to group size"),
        "DDP305",
        "The split sizes are wrong: there must be one per rank, and their sum must be the tensor's first dimension.",
        "Exchange the sizes first (all_to_all_single of the counts), then the data.",
    ),
    (
        re.compile(r"Invalid usage of tensors with different dtypes\s?Found (\S{1,40})\s{1,3}and\s{1,3}(\S{1,40})"),
        "DDP304",
        "One call got tensors of {0} and of {1}.",
        "Convert before the call: tensor.to(torch.float32).",
    ),
    (
        re.compile(r"Argument ``(\w{1,30})`` must (NOT )?be specified on (non-)?(destination|source) ranks?"),
        "DDP305",
        "{0} is for the root only: a list there, None on the other ranks.",
        "Pass it on the root only: gather_list=buffers if dist.get_rank() == dst else None.",
    ),
    (
        re.compile(r"invalid root rank: (\d{1,9})|Global rank (\d{1,9}) is not part of group"),
        "DDP305",
        "The root of the call, rank {0}, is not a member of the group.",
        "src and dst are global ranks: dist.get_global_rank(group, 0) is the first member of a group.",
    ),
    (
        re.compile(
            r"Invalid (?:destination|source) rank: (?:destination|source) rank should not be the same as the rank"
        ),
        "DDP307",
        "The rank sends to itself, or receives from itself.",
        "Copy the tensor instead; in a ring use the neighbours (rank + 1) % world_size and (rank - 1) % world_size.",
    ),
    (
        re.compile(
            r"Rank (\d{1,9}) is out of range\. Valid ranks are|group's (?:rank|world size) should be (?:within|less or equal to) "
            r"the world_?\s?size set by|ranks list must not contain duplicate entries"
        ),
        "DDP108",
        "new_group got a rank outside the world, or a rank twice.",
        "Use ranks of range(dist.get_world_size()), each once, and the same list on every rank.",
    ),
    (
        re.compile(
            r"_verify_params_across_processes\(\): incompatible function arguments(?=[\s\S]{0,2000}Invoked with: -100,)"
        ),
        "DDP108",
        "The model is wrapped with a group to which this rank does not belong.",
        "Wrap on the members only: DistributedDataParallel(model, process_group=group) if dist.get_rank(group) >= 0.",
    ),
)


def arguments(raised: Raised) -> Explained | None:
    for pattern, code, summary, remedy in _ARGUMENTS:
        if match := pattern.search(raised.text):
            values = [value for value in match.groups() if value] or [""]
            return Explained(code, summary.format(*values, ""), remedy)
    return None


RULES = (arguments,)
