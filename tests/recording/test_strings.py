"""The strings of a box, as a reader follows them from one generation to the next."""

from __future__ import annotations

import json

from ddpnb.recording.strings import Strings, string_number


def table(*values):
    texts = [json.dumps(value).encode() for value in values]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def follow(strings, generation, data):
    strings.follow(lambda: (generation, len(data)), lambda at, size: data[at : at + size])


def test_numbers_of_the_generation_before_keep_their_meaning():
    strings = Strings()
    follow(strings, 1, table({}, "of the first"))
    follow(strings, 2, table({}, "of the second"))
    assert [strings.get(string_number(generation, 1)) for generation in (1, 2)] == ["of the first", "of the second"]
    follow(strings, 3, table({}))
    assert [strings.get(string_number(generation, 1)) for generation in (1, 2, 3)] == [None, "of the second", None]
