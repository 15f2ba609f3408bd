import pytest

from ddpnb.reports import script_checkpoints
from ddpnb.reports.facts import CheckpointPassed, Identity, Speaker, WorldSize
from tests.reports.reading import NOISE, of, read


@pytest.mark.parametrize(
    ("line", "speaker", "since", "size"),
    [
        ("[12:01:33.123][+34.1s][R0/2][LR0][4711] CHECKPOINT 9: about to wrap", Speaker(0, 4711), 34.1, 2),
        ("[2024-05-01 12:01:33] [Rank 0/2] [PID 4711] Checkpoint #9 - about to wrap", Speaker(0, 4711), 0, 2),
        ("[R0/2] \U0001f4cd CHECKPOINT 9: *** about to wrap (SUSPECT)", Speaker(0), 0, 2),
        ("[rank0]: CHECKPOINT 9: about to wrap", Speaker(0), 0, 0),
        ("[Rank 0] *** CHECKPOINT 9 *** about to wrap", Speaker(0), 0, 0),
        ("INFO Rank 0/2 | checkpoint 9: about to wrap", Speaker(0), 0, 2),
        ("[RANK 0] [CKPT 9] about to wrap", Speaker(0), 0, 0),
    ],
)
def test_numbered_lines(line, speaker, since, size):
    facts = read(script_checkpoints, NOISE + line + "\n" + NOISE)
    assert of(CheckpointPassed, facts) == [CheckpointPassed(speaker, 9, "about to wrap", since)]
    assert of(WorldSize, facts) == ([WorldSize(size)] if size else [])
    assert of(Identity, facts) == ([Identity(speaker)] if speaker.pid else [])


def test_lines_without_numbers_are_numbered_in_the_order_in_which_they_appear():
    text = (
        "[DDP-DEBUG] [Rank 0] Step 3: calling init_process_group(backend=nccl)\n"
        "[DDP-DEBUG] [Rank 1] Step 3: calling init_process_group(backend=nccl)\n"
        "[DDP-DEBUG] Rank 1: init_process_group completed on cuda:1\n"
        "[DDP-DEBUG] Rank 0: init_process_group completed on cuda:0\n"
        "[DDP-DEBUG] [Rank 0] wrapping\n"
    )
    facts = of(CheckpointPassed, read(script_checkpoints, text))
    assert [(fact.speaker.rank, fact.number) for fact in facts] == [(0, 1), (1, 1), (1, 2), (0, 2), (0, 3)]
    assert facts[0].name == "Step 3: calling init_process_group(backend=nccl)"


@pytest.mark.parametrize(
    "line", ["Saving checkpoint 500 to /x", "[rank0]: Checkpoint 1000: saved", "Loaded checkpoint 3 - ok"]
)
def test_states_of_models_are_no_numbered_checkpoints(line):
    assert not of(CheckpointPassed, read(script_checkpoints, line))


def test_hostile_lines():
    read(script_checkpoints, "CHECKPOINT 1" * 300_000)
    read(script_checkpoints, "[DDP-DEBUG]" * 300_000)
