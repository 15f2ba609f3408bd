"""DDP301-308: mismatched and missing calls, as far as torch itself reports them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpnb.model import phrases
from ddpnb.rules.messages.explained import Explained, Raised, numbers, seconds

_FAILED = re.compile(r"Ranks? ([\d, ]{1,20000}) failed to pass monitoredBarrier in (\d{1,12}) ms")
_REACHED = re.compile(r"Rank (\d{1,9}) successfully reached monitoredBarrier, but received errors")
_LATE = re.compile(r"Rank (\d{1,9}) timed out in monitoredBarrier after (\d{1,12}) ms")
_PASSED = re.compile(r"Successfully processed ranks: ([\d, ]{1,20000})")


def monitored_barrier(raised: Raised) -> Explained | None:
    text = raised.text
    if match := _FAILED.search(text):
        absent = numbers(match[1])
        return Explained(
            "DDP301",
            f"{phrases.ranks(absent, capital=True)} did not reach monitored_barrier within {seconds(match[2])}.",
            f"Look at where {phrases.ranks(absent)} {phrases.verb(absent, 'was', 'were')} at that time: "
            f"{phrases.verb(absent, 'it', 'they')} skipped the call, exited, or {phrases.verb(absent, 'is', 'are')} stuck.",
            _went(text),
            culprits=absent,
            missing=absent,
        )
    if _REACHED.search(text):
        return Explained(
            "DDP301",
            "monitored_barrier failed after this rank reached it: rank 0, which checks all ranks, missed another one.",
            "Read the message of rank 0.",
            ("The message on rank 0 names the missing rank.",),
            culprits=(),
        )
    if match := _LATE.search(text):
        passed = _PASSED.search(text)
        evidence = (f"{phrases.ranks(numbers(passed[1]), capital=True)} reached it.",) if passed else ()
        return Explained(
            "DDP301",
            f"Timed out after {seconds(match[2])} in monitored_barrier, waiting for another rank.",
            "Look at the ranks that did not reach it.",
            evidence,
            culprits=(),
        )
    return None


def _went(text: str) -> tuple[str, ...]:
    if re.search(r"by peer|[Bb]roken pipe", text):
        return ("Its connection was lost: the process ended.",)
    return ()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A fingerprint of TORCH_DISTRIBUTED_DEBUG=DETAIL: what a rank calls, as torch writes it."""

    rank: int
    op: str
    seq: int | None
    shape: str
    dtype: str

    def __str__(self) -> str:
        tensor = f" of {self.dtype} [{self.shape}]".replace("  ", " ") if self.shape or self.dtype else ""
        number = f" #{self.seq}" if self.seq is not None else ""
        return f"{self.op}{number}{tensor}"


_RANK_IN = re.compile(r"Rank (\d{1,9}) is running (?:inconsistent )?collective:\s{0,4}")
_OP = re.compile(r"OpType=(\w{1,60})")
_SEQ = re.compile(r"SequenceNumber=(\d{1,19})")
_SHAPE = re.compile(r"TensorShape=\[([^\]]{0,2000})\]")
_DTYPE = re.compile(r"TensorDtypes=([\w, ]{1,500}?)(?:, TensorDevice|\)|$)")


MISMATCH = "Detected mismatch between collectives on ranks"
#: the operation of a fingerprint that torch misreads
ANOTHER = "another call"


def sides(text: str) -> list[Fingerprint]:
    """The fingerprints of the two ranks that a message of TORCH_DISTRIBUTED_DEBUG=DETAIL compares."""
    parts = list(_RANK_IN.finditer(text))[:2]
    ends = [part.start() for part in parts[1:]] + [len(text)]
    return [_read(int(part[1]), text[part.end() : end][:5000]) for part, end in zip(parts, ends, strict=False)]


def fingerprints(raised: Raised) -> Explained | None:
    text = raised.text
    if MISMATCH not in text:
        return None
    prints = sides(text)
    if len(prints) < 2:
        what = f" (here {prints[0]})" if prints else ""
        return Explained("DDP302", f"The ranks issued different collectives{what} at the same sequence number.", _ALIKE)
    first, second = sorted(prints, key=lambda side: side.rank)
    code, what = _difference(first, second, text)
    evidence = tuple(f"Rank {side.rank} calls {side}." for side in (first, second))
    return Explained(code, f"Ranks {first.rank} and {second.rank} {what}.", _REMEDIES.get(code, _ALIKE), evidence)


def _read(rank: int, text: str) -> Fingerprint:
    op, seq, shape, dtype = (pattern.search(text) for pattern in (_OP, _SEQ, _SHAPE, _DTYPE))
    bare = re.match(r"(\w{1,60})", text)
    name = op[1] if op else bare[1] if bare else "?"
    if op and shape is None and name != "BARRIER":
        # torch misreads the fingerprint of a call whose layout differs from its own,
        # and names a wrong operation (seen: REDUCE for a barrier).
        name, seq = ANOTHER, None  # and a wrong number
    return Fingerprint(
        rank, name.lower(), int(seq[1]) if seq else None, shape[1] if shape else "", dtype[1].lower() if dtype else ""
    )


def _difference(first: Fingerprint, second: Fingerprint, text: str) -> tuple[str, str]:
    if first.op != second.op:
        same = " at the same sequence number" if first.seq == second.seq else ""
        return "DDP302", f"issued different collectives{same}: {first.op} and {second.op}"
    if first.shape != second.shape:
        return "DDP303", f"passed {first.op} tensors of different sizes: [{first.shape}] and [{second.shape}]"
    if first.dtype != second.dtype:
        return "DDP304", f"passed {first.op} tensors of different dtypes: {first.dtype} and {second.dtype}"
    if "Tensor devices:" in text:
        return "DDP305", f"passed {first.op} tensors on different devices"
    if first.seq != second.seq:
        return (
            "DDP301",
            f"are at different sequence numbers: {first.op} is #{first.seq} on rank {first.rank}, #{second.seq} on rank "
            f"{second.rank}",
        )
    return "DDP305", f"passed {first.op} different arguments"


_ALIKE = "Call the same collectives in the same order on every rank: look for a call, or an early return, under a condition that differs."
_REMEDIES = {
    "DDP303": "Pad to a common size (all_reduce of the maximum first), or use all_gather_object; use drop_last=True "
    "if the last batch is smaller on one rank.",
    "DDP304": "Convert before the call (tensor.to(torch.float32)); the usual cause is a count that is int on one rank, float on another.",
    "DDP305": "Pass the same arguments on every rank.",
}

_BYTES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,19}) vs\.? (\d{1,19})")
_NET_BYTES = re.compile(r"collective mismatch error, local size (\d{1,19}) remote size (\d{1,19})")
_NCCL_MISMATCH = re.compile(
    r"Mismatched collective detected, please check your collective calls at and around rank (\d{1,9})"
)


def sizes(raised: Raised) -> Explained | None:
    """What gloo and NCCL detect of a mismatch, when data of the wrong size arrive."""
    if match := _BYTES.search(raised.text):
        return Explained(
            "DDP303",
            f"Another rank sent {match[1]} bytes where {match[2]} were expected: the tensors of one call have different "
            "sizes or dtypes.",
            _REMEDIES["DDP303"] + " Different dtypes have different sizes too: convert before the call.",
        )
    if match := _NET_BYTES.search(raised.text):
        return Explained(
            "DDP303",
            f"A rank sends {match[1]} bytes where its peer expects at most {match[2]}: their calls differ in the sizes of the "
            "tensors, or altogether.",
            _REMEDIES["DDP303"],
        )
    if match := _NCCL_MISMATCH.search(raised.text):
        return Explained(
            "DDP302", f"NCCL saw different calls around rank {match[1]}.", _ALIKE, culprits=(int(match[1]),)
        )
    return None


_EXHAUSTED = re.compile(r"^Rank (\d{1,9}) exhausted all inputs\.")


def uneven(raised: Raised) -> Explained | None:
    ends = "Detected at least one rank that exhausted inputs" in raised.text
    match = _EXHAUSTED.search(raised.text)
    if not ends and match is None:
        return None
    who = f"Rank {match[1]}" if match else "Another rank"
    return Explained(
        "DDP308",
        f"{who} ran out of batches before other ranks.",
        "Give every rank the same number of batches (DistributedSampler, drop_last=True), or omit "
        "throw_on_early_termination, so that Join continues with the other ranks.",
        ("Join raises because of throw_on_early_termination=True.",),
        culprits=(int(match[1]),) if match else (),
    )


_GLOO_WAIT = re.compile(r"Timed out waiting (\d{1,12})ms for (recv|send) operation to complete")
_NCCL2_WAIT = re.compile(r"NCCL operation timed out|\[TC\]\S{0,200}\s{1,3}Operation timed out after (\d{1,12}) ms")
_NCCL_WAIT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,19}), OpType=(\w{1,60}).{0,400}?"
    r"ran for (\d{1,12}) milliseconds"
)


def timed_out(raised: Raised) -> Explained | None:
    """A time-out: this rank is in the call and another is not; the message does not say which."""
    if match := _NCCL_WAIT.search(raised.text):
        what, waited = f"{match[2].lower()} #{match[1]}", match[3]
    elif (match := _GLOO_WAIT.search(raised.text)) or (match := _NCCL2_WAIT.search(raised.text)):
        what, waited = "a collective", match[1]
    else:
        return None
    after = f" after {seconds(waited)}" if waited else ""
    return Explained(
        "DDP301",
        f"Timed out{after} in {what}, waiting for a rank that did not join it.",
        _ALIKE,
        ("The message does not say which rank: look at those that did not report a time-out.",),
        culprits=(),
    )


_STUCK = re.compile(r"watchdog got stuck for (\d{1,9})\s|Heartbeat monitor timed out")


def stuck(raised: Raised) -> Explained | None:
    """The thread that watches NCCL's calls does not run: a call of CUDA does not return, or the GIL is held in native code."""
    match = _STUCK.search(raised.text)
    if match is None:
        return None
    return Explained(
        "DDP314",
        f"NCCL's watchdog thread made no progress{f' for {match[1]} s' if match[1] else ''}: a call of CUDA or NCCL does not "
        "return, or native code holds the GIL.",
        "Look at the native frames of all threads while it hangs (py-spy dump --native --pid PID, or gdb), at the kernel's log for "
        "Xid, and at the device (nvidia-smi -q).",
    )


RULES = (stuck, monitored_barrier, fingerprints, sizes, uneven, timed_out)
