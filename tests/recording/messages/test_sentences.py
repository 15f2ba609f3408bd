from __future__ import annotations

import pytest

from ddpnb.recording.messages.sentences import listing, numbers, seconds, sentence, sentences, size


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{a} of {b}", {"a": "1"}, "1 of "),
        ("Out{? after {a:seconds}}.", {"a": "8000"}, "Out after 8 s."),
        ("Out{? after {a:seconds}}.", {}, "Out."),
        ("{?Port {a}|The port} is in use", {}, "The port is in use"),
        ("{?Port {a}|{?Port {b}|The port}} is in use", {"b": "80"}, "Port 80 is in use"),
        ("x{?: {a}{?, {b} free}}.", {"a": "1"}, "x: 1."),
        ("x{?: {a}{?, {b} free}}.", {"b": "2"}, "x."),
        ("{?{a:given}lost|kept}", {"a": "yes"}, "lost"),
        ("{r:Ranks} {r:was|were} late", {"r": "2, 1"}, "Ranks 1 and 2 were late"),
        ("{r:ranks} {r:was|were} late", {"r": (1,)}, "rank 1 was late"),
        ("{n} {n:parameter|parameters}", {"n": 1}, "1 parameter"),
        ("{{{a}}} {a!r}", {"a": "{b}"}, "{{b}} '{b}'"),
        ("{a:+1} {b:quoted}", {"a": "1", "b": "'x'"}, "2 'x'"),
    ],
)
def test_a_sentence_says_what_is_known(template, values, text):
    assert sentence(template, values) == text


def test_evidence_of_a_list_is_said_of_each():
    assert sentences(("{a:each} here.", "{?{b}.}", "c."), {"a": ["x", "y"]}) == ("x here.", "y here.", "c.")


def test_words():
    assert listing([]) == ""
    assert listing("ab") == "a and b"
    assert listing("abcdefgh", 4) == "a, b, c and 5 more"
    assert [size(n) for n in (12, 2048, 300 << 20, "4000000000000000")] == ["12 bytes", "2.0 KiB", "300 MiB", "3.6 PiB"]
    assert [seconds(ms) for ms in ("500", "8000", "60000", "1800000")] == ["0.5 s", "8 s", "60 s", "30 min"]
    assert numbers("3, 1 2, 1") == (1, 2, 3)
