import time

import pytest

from ddpnb.reports import logs
from ddpnb.reports.facts import NOBODY, Speaker


@pytest.mark.parametrize(
    ("line", "text", "speaker"),
    [
        ("[rank3]: boom", "boom", Speaker(3)),
        ("[rank3]:[E1123 12:00:00 x.cpp:1] boom", "[E1123 12:00:00 x.cpp:1] boom", Speaker(3)),
        ("[default3]:boom", "boom", Speaker(3)),
        ("[trainer0]: boom", "boom", Speaker(0)),
        ("3: boom", "boom", Speaker(3)),
        (" 12:   File", "  File", Speaker(12)),
        ("[1,3]<stderr>:boom", "boom", Speaker(3)),
        ("[3]<stderr>:boom", "boom", Speaker(3)),
        ("[node7|2]:boom", "boom", NOBODY),
        ("704.7s\t1468\t[rank3]: boom", "boom", Speaker(3)),
        ("704.7s\t1468\t  rank      : 3", "  rank      : 3", NOBODY),
        ("  | 2024-05-01T12:00:00.123Z | [rank3]: boom", "boom", Speaker(3)),
        ("  | boom", "  | boom", NOBODY),
        ("2024-05-01T12:00:00.123456789Z [rank3]: boom", "boom", Speaker(3)),
        ("2024-05-01T12:00:00.123456789Z stderr F [rank3]: boom", "boom", Speaker(3)),
        ("[pod/train-worker-3/pytorch] [rank2]: boom", "boom", Speaker(2, 0, "train-worker-3")),
        ("(RayTrainWorker pid=615, ip=10.0.0.6) boom", "boom", Speaker(None, 615, "10.0.0.6")),
        ("\x1b[36m(WorkerDict pid=615)\x1b[0m [rank1]: boom", "boom", Speaker(1, 615)),
        ("[80746] [rank0]: boom", "boom", Speaker(0)),
        ("\x1b[1;31m[rank3]:\x1b[0m boom", "boom", Speaker(3)),
        ("12:01:33 boom", "boom", NOBODY),
        (">   File", "  File", NOBODY),
        ("> [rank3]: boom", "boom", Speaker(3)),
        (">>> boom", ">>> boom", NOBODY),
        ("18:11:06.680 [rank4]:[E205 x] boom", "[E205 x] boom", Speaker(4)),
        ("big-nodes.cn-d004 [stderr] [rank13]: boom", "boom", Speaker(13)),
        ("[2024-05-01 12:01:33] boom", "[2024-05-01 12:01:33] boom", NOBODY),
        ("ValueError: boom", "ValueError: boom", NOBODY),
        ("[rank3]: 12: boom", "12: boom", Speaker(3)),
        ("bo\x07om", "boom", NOBODY),
        ("[2026-03-09 00:57:15 TP4] boom", "boom", Speaker(4)),
        ("[2026-03-09 00:57:15 TP4 EP4] boom", "boom", Speaker(4)),
        ("[2026-03-09 00:57:15 DP1 TP4] boom", "[2026-03-09 00:57:15 DP1 TP4] boom", NOBODY),
        ("(Worker_TP1 pid=41) boom", "boom", Speaker(1, 41)),
        ("(Worker_TP1_EP1 pid=41) boom", "boom", Speaker(1, 41)),
        ("(Worker_DP0_TP1 pid=41) boom", "boom", Speaker(None, 41)),
    ],
)
def test_prefixes_of_launchers_say_who_speaks(line, text, speaker):
    log = logs.read("x.log", line)
    assert (log.text, log.speaker_at(0)) == (text, speaker)


def test_the_local_rank_of_a_second_node_is_no_rank():
    lines = ["[default1]:[rank5]: raised", "[default1]:after it", "[default0]:[rank4]: step", "[default2]:step"]
    log = logs.read("x.log", "\n".join(lines))
    assert log.text.split("\n") == ["raised", "after it", "step", "step"]
    assert [speaker.rank for speaker in log.speakers] == [5, 5, 4, None]
    both = logs.read("x.log", "\n".join([*lines, "[default1]:[rank1]: of the first node"]))
    assert [speaker.rank for speaker in both.speakers] == [5, None, 4, None, 1]


def test_a_date_is_taken_off_where_all_lines_have_it():
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: bad", "[rank3]: boom"]
    log = logs.read("x.log", "\n".join(f"Jul  3 21:22:34 {line}" for line in lines))
    assert log.text == "\n".join([*lines[:3], "boom"])
    assert log.speakers[-1] == Speaker(3)
    assert logs.read("x.log", "Jul  3 21:22:34 boom\nbad\nworse\nworst").text.startswith("Jul")


def test_a_prefix_of_hosts_is_taken_off_where_all_lines_have_it():
    log = logs.read("x.log", "\n".join(f"node{n % 2}: [rank{n}]: boom {n}" for n in range(8)))
    assert log.text.split("\n")[3] == "boom 3"
    assert log.speakers[3] == Speaker(3, 0, "node1")


def test_docker_compose_names_services():
    log = logs.read("x.log", "\n".join(f"worker-{n}  | [rank{n}]: boom" for n in range(5)))
    assert log.speakers[4] == Speaker(4, 0, "worker-4")
    assert log.text.split("\n")[4] == "boom"


def test_log_files_of_docker():
    log = logs.read("x.log", '{"log":"[rank1]: boom\\n","stream":"stderr","time":"2024"}\n{"log":"a\\n"}\n{broken')
    assert log.text == "boom\na\n{broken"
    assert log.speakers[0] == Speaker(1)


def test_a_rank_that_writes_behind_a_progress_bar():
    log = logs.read("x.log", "Epoch 0: 6%|#  | 3/50 [00:01][rank5]:[E x.cpp:1] boom")
    assert (log.text, log.speaker_at(0).rank) == ("[E x.cpp:1] boom", 5)
    log = logs.read("x.log", "[rank4]: Epoch 0: 6%|#  | 3/50 [00:01][rank5]:[E x.cpp:1] boom")
    assert (log.speaker_at(3).rank, log.speaker_at(log.text.index("boom")).rank) == (4, 5)


def test_a_task_of_srun_that_is_torchrun_is_a_node():
    text = "1: [rank5]: boom\n1: torchrun: starting\n0: hello\n"
    assert [one.rank for one in logs.read("a.log", text).speakers] == [5, None, None, None]
    assert logs.read("a.log", text).speakers[2].host == "task 0"
    assert [one.rank for one in logs.read("a.log", "1: [rank5]: boom\n3: hello\n").speakers] == [5, 3, None]


def test_a_progress_bar_that_writes_over_itself():
    assert logs.read("x.log", "1%\r2%\r[rank1]: boom\r\nnext").text == "1%\n2%\nboom\nnext"


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("/tmp/none_1x/attempt_0/3/stderr.log", 3),
        ("logs/rank3.log", 3),
        ("logs/rank_3.err", 3),
        ("logs/rank-3/stderr.txt", 3),
        ("global_rank=12.out", 12),
        ("worker-3.log", 3),
        ("worker-3/stderr.log", 3),
        ("local_rank3.log", None),
        ("frank3.log", None),
        ("lora_rank64.log", None),
        ("rank64_of_lora/train.log", None),
        ("train.log", None),
        ("job_12.log", None),
    ],
)
def test_the_path_names_the_rank(path, rank):
    assert logs.rank_of_path(path) == rank


def test_the_path_names_the_rank_only_where_no_line_names_another():
    assert logs.read("rank3.log", "boom").speaker_at(0).rank == 3
    assert logs.read("rank3.log", "[rank3]: boom\nmore").speaker_at(6).rank == 3
    assert logs.read("rank3.log", "[rank1]: boom\nmore").speaker_at(6).rank is None


def test_the_text_of_a_line():
    log = logs.read("x.log", "[rank0]: a\n[rank1]: b\nc")
    assert [log.line(number) for number in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "text", ["[" * 10_000_000, "\x1b[" * 3_000_000, "(" * 1_000_000 + "\n[rank", "1" * 5_000_000, "\r" * 1_000_000]
)
def test_hostile_texts_take_no_time(text):
    start = time.process_time()
    logs.read("x.log", text)
    assert time.process_time() - start < 5
