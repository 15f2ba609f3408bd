from __future__ import annotations

from ddpnb.recording.messages.tracebacks import read

SIMPLE = """\
step 4 loss 0.3
Traceback (most recent call last):
  File "/home/user/train.py", line 12, in <module>
    main()
    ~~~~^^
  File "/home/user/net.py", line 7, in forward
    return model.head(x)
           ^^^^^^^^^^
  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1967, in __getattr__
    raise AttributeError(
AttributeError: 'DistributedDataParallel' object has no attribute 'head'
done
"""


def prefixed(text: str, prefix: str) -> list[str]:
    return [f"{prefix}{line}" for line in text.splitlines()]


def test_an_exception_with_its_frames_and_lines():
    (found,) = read(SIMPLE)
    assert found.exception == "AttributeError"
    assert found.message.startswith("'DistributedDataParallel' object has no attribute 'head'")
    assert [(frame.file, frame.line, frame.function, frame.user) for frame in found.frames] == [
        ("/home/user/train.py", 12, "<module>", True),
        ("/home/user/net.py", 7, "forward", True),
        ("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1967, "__getattr__", False),
    ]
    assert found.quoted["/home/user/net.py", 7] == "return model.head(x)"


def test_a_message_of_several_lines_ends_at_the_next_announcement():
    text = "RuntimeError: Error(s) in loading:\n\tMissing key(s): a\n\n[rank0]:[W1121 10:12:12 socket.cpp:1] more\n"
    assert read(text)[0].message == "Error(s) in loading:\n\tMissing key(s): a"
    text = "RuntimeError: one\nException raised from f at g.cpp:1\nframe #0: x\n"
    assert read(text)[0].message == "one"


def test_chained_exceptions_come_in_order_with_their_cause():
    text = (
        "Traceback (most recent call last):\nOSError: inner\n\nThe above exception was the direct cause of the following "
        "exception:\n\nTraceback (most recent call last):\nRuntimeError: outer\n\nDuring handling of the above exception, "
        "another exception occurred:\n\nTraceback (most recent call last):\nKeyError: 'x'\n"
    )
    found = read(text)
    assert [(one.exception, one.message, one.cause) for one in found] == [
        ("OSError", "inner", ""),
        ("RuntimeError", "outer", "inner"),
        ("KeyError", "'x'", ""),
    ]


def test_tracebacks_of_several_ranks_that_were_mixed_are_told_apart():
    first, second = prefixed(SIMPLE, "[rank0]: "), prefixed(SIMPLE.replace("line 12", "line 99"), "[rank1]: ")
    mixed = "\n".join(line for pair in zip(first, second, strict=True) for line in pair)
    found = read(mixed)
    assert [(one.rank, one.frames[0].line, len(one.frames)) for one in found] == [(0, 12, 3), (1, 99, 3)]


def test_prefixes_of_launchers():
    for prefix, rank in (
        ("[default3]:", 3),
        ("[default3]:[rank3]: ", 3),
        ("12: ", 12),
        ("[1,2]<stderr>:", 1),
        ("", None),
    ):
        (found,) = read("\n".join(prefixed(SIMPLE, prefix)))
        assert (found.exception, found.rank, len(found.frames)) == ("AttributeError", rank, 3)


def test_classes_with_dots_and_without_messages():
    text = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\nEOFError\nstruct.error: unpack\nKeyError: 'a'\n"
    assert [one.exception.rpartition(".")[2] for one in read(text)] == [
        "RendezvousTimeoutError",
        "EOFError",
        "error",
        "KeyError",
    ]


def test_what_is_no_exception():
    text = "UserWarning: x\nerror: y\nINFO: RuntimeError\nLoss: 3\nhttp://a.b/Error: 4\nFile: x\n"
    assert read(text) == []


def test_odd_lines_are_read_in_one_pass():
    for line in (
        "[rank0]: " * 9,
        "a." * 20_000,
        '  File "' + "x" * 20_000,
        "1: " * 9_000,
        "Error: " * 9_000,
        "\0\x1b[31m",
    ):
        read(line + "\n" + line)
    frames = '  File "a.py", line 1, in f\n    x\n' * 5_000
    (found,) = read(
        "Traceback (most recent call last):\n" + frames + "RecursionError: maximum recursion depth exceeded"
    )
    assert len(found.frames) == 256


def test_the_wrappers_are_no_code_of_the_user_in_a_log():
    log = """Traceback (most recent call last):
  File "/work/train.py", line 3, in <module>
    dist.init_process_group("gloo")
  File "<ddpnb importlib._bootstrap>", line 81, in forwarded
ValueError: bad
"""
    (error,) = read(log)
    assert [frame.user for frame in error.frames] == [True, False]


def test_below_frames_the_name_of_any_class_is_that_of_an_exception():
    text = 'Traceback (most recent call last):\n  File "t.py", line 4, in f\n    next(it)\npyarrow.lib.ArrowInvalid: no magic bytes\n'
    (error,) = read(f"torch.nn.Linear: 3\n{text}")
    assert (error.exception, error.message, error.frames[0].line) == ("pyarrow.lib.ArrowInvalid", "no magic bytes", 4)
