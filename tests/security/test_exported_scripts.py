"""The sender of a recording wants the script that is made from it to run his code."""

from __future__ import annotations

import ast
import dataclasses
import gzip
import json
import os
import shlex
import subprocess
import tokenize
import types
from collections.abc import Mapping
from typing import Any

import pytest

from ddpnb.errors import UsageError
from ddpnb.notebook.run_actions import is_ours
from ddpnb.studies.bisection.bisecting import Bisection
from ddpnb.studies.reenactment import header, script
from ddpnb.studies.reenactment.planning import plan_of
from ddpnb.studies.reenactment.reenact import export
from ddpnb.studies.reenactment.script import script_of
from ddpnb.texts import comment, shell_word
from tests.rules.environment.test_own_ranks import starts
from tests.rules.recordings import asked, record
from tests.studies.reenactment.programs import KINDS, recording_of

RUN = "__import__('builtins').REACHED"
COOKIES = (
    "utf-7", "unicode_escape", "raw_unicode_escape", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "punycode", "idna",
    "rot13", "hex", "base64", "zlib", "latin-1", "cp037", "hz", "iso2022_jp", "undefined", "mbcs", "foo",
)  # fmt: skip
LEAVING = {
    "line feed": f"\n{RUN}\n#",
    "carriage return": f"\r{RUN}\r#",
    "escaped line feed": f"\\x0a{RUN}\\x0a#",
    "escaped twice": f"\\\\x0a{RUN}\\u000a#",
    "utf-7": f"+AAo-{RUN}+AAo-#",
    "form feed": f"\x0c{RUN}\x0b#",
    "separators": f"\x1c{RUN}\x1d{RUN}\x1e{RUN}\x85{RUN}\u2028{RUN}\u2029#",
    "quotes": f"\"\"\"'''\"'){RUN}#\\",
    "a backslash at the end": f"x\\\n{RUN}\\",
    "fields": "{0.__class__} {self} {RUN!r} %s %(x)s %n f'{1/0}' $(touch x) `touch x`",
    "odd characters": "\ud800\udfff\x00\ufeff\ufffe\U000e0001\u202e",
    "a name": "os.system",
    "a keyword": "import",
    "a name of ours": "text_0",
    "a group of ours": "group_1",
    "long": f"{RUN};" * 4000,
}
FIELDS = (
    "file", "function", "name", "desc", "text", "op", "dtypes", "reduce_op", "layout", "agreed", "message", "exception",
    "thread", "host", "doing", "label", "summary",
)  # fmt: skip


def poisoned(value: Any, text: str, field: str, inside: bool = False) -> Any:
    """The same with this text in all fields of that name; empty: in all."""
    if isinstance(value, str):
        return text if inside or not field else value
    if isinstance(value, tuple):
        return tuple(poisoned(one, text, field, inside) for one in value)
    if isinstance(value, Mapping):
        return {key: poisoned(one, text, field, inside) for key, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {
            one.name: poisoned(getattr(value, one.name), text, field, one.name == field)
            for one in dataclasses.fields(value)
            if one.init
        }
        return dataclasses.replace(value, **given)
    return value


def check(text: str | bytes) -> None:
    """That Python reads it as a script of ours: its module level, executed, and the names that its main() has."""
    data = text.encode() if isinstance(text, str) else text
    assert data.startswith(header.FIRST_LINES.encode())
    assert tokenize.detect_encoding(iter(data.splitlines(True)).__next__)[0] == "ascii"
    assert data.isascii() and not set(data) & {0, 9, 11, 12, 13, 27, 28, 29, 30, 31, 127}
    code = compile(data, "script", "exec", dont_inherit=True)
    reached = []
    torch = types.ModuleType("torch")
    torch.distributed = types.ModuleType("torch.distributed")
    builtins = types.ModuleType("builtins")
    builtins.__getattr__ = reached.append
    known = {"os": os, "torch": torch, "torch.distributed": torch, "builtins": builtins}

    def imports(name: str, *_: Any) -> Any:
        return known.get(name) or __import__(name)

    limited = {"__import__": imports, "int": int, "range": range, "RuntimeError": RuntimeError}
    exec(code, {"__name__": "script", "__builtins__": limited})
    assert not reached
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert {one.name for one in node.names} <= {
                "os", "signal", "threading", "time", "timedelta", "torch", "torch.distributed",
            }  # fmt: skip
        if isinstance(node, ast.Name):
            assert node.id not in {"__import__", "eval", "exec", "open", "compile", "builtins", "getattr"}
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"system", "popen", "REACHED"}


@pytest.mark.parametrize("cookie", COOKIES)
def test_a_name_of_a_file_chooses_no_encoding(cookie):
    for name in (f"hang coding:{cookie} .ddpnb", f"-*- coding={cookie} -*-", f"\n# vim: set fileencoding={cookie} :"):
        for leaving in ("line feed", "escaped line feed", "utf-7"):
            check(script_of(plan_of(recording_of(KINDS["raised"])), name + LEAVING[leaving], file=name))


@pytest.mark.parametrize("leaving", LEAVING.values(), ids=LEAVING)
def test_no_text_leaves_its_place(leaving):
    for kind, field in zip(["raised", "crossed"] * len(FIELDS), FIELDS, strict=False):
        given = f"coding:unicode_escape {leaving}"
        check(script_of(plan_of(poisoned(recording_of(KINDS[kind]), given, field)), given, file=given))


@pytest.mark.full
@pytest.mark.parametrize("leaving", LEAVING.values(), ids=LEAVING)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_no_text_of_any_kind_of_hang_leaves_its_place(kind, leaving):
    recording = recording_of(kind)
    for field in ("", *FIELDS):
        try:
            plan = plan_of(poisoned(recording, leaving, field))
        except UsageError:  # without its facts it has nothing to re-enact
            continue
        check(script_of(plan, leaving, file=leaving))


def test_the_file_of_a_recording_is_exported_whatever_its_name_is(tmp_path, monkeypatch):
    """As it was done: the name chooses an encoding, in which the name of a function is a new line."""
    monkeypatch.chdir(tmp_path)
    recording_of(KINDS["raised"]).save("clean.ddpnb")
    head, body = gzip.open("clean.ddpnb").read().split(b"\n")
    sites = json.loads(body)
    for site in sites["tables"]["Site"]:
        site[2] = r"main\x0aimport\x20os;os.system('touch\x20reached')\x0a\x23"
    names = [
        "hang coding:unicode_escape .ddpnb",
        "x coding:foo.ddpnb",
        "$(touch reached).ddpnb",
        "-o.ddpnb",
        "\u202ea.ddpnb",
    ]
    for name in names:
        with gzip.open(name, "w") as file:
            file.write(head + b"\n" + json.dumps(sites).encode())
        export(os.path.join(".", name), "script.py")
        with open("script.py", "rb") as file:
            check(file.read())
        assert is_ours("script.py")


def test_what_is_not_what_was_meant_is_not_written(monkeypatch):
    """Whatever a later change lets through: a name that is none of ours, and a comment that ends its line."""
    plan = plan_of(recording_of(KINDS["raised"]))
    with monkeypatch.context() as patched:
        patched.setattr(header, "comment", lambda text, longest=0: text)
        with pytest.raises(UsageError, match="nothing is written"):
            script_of(plan, "x\nimport os\n")
    for statement in ("os.system(rank)", "open(rank)", "import socket", "'x'.join(rank)", "dist.all_reduce(f'{rank}')"):
        monkeypatch.setattr(script, "text_of", lambda *_, code=statement: code)
        with pytest.raises(UsageError, match="nothing is written"):
            script_of(plan)


@pytest.mark.parametrize(
    "subject", ["Fix; touch reached", "$(touch reached)", "`touch reached`", "a\ntouch reached", "a\r\x85b"]
)
def test_the_subject_of_a_commit_is_no_command(tmp_path, monkeypatch, subject):
    """The author of a commit that a search finds: its subject is written to a shell script."""
    monkeypatch.chdir(tmp_path)
    search = Bisection.__new__(Bisection)
    monkeypatch.setattr(Bisection, "typed", lambda _: "")
    monkeypatch.setattr(Bisection, "commit", lambda _: subject)
    monkeypatch.setattr(Bisection, "finding", {"summary": f"Rank 1\n{subject}"}, raising=False)
    search.write_repro("repro.sh")
    subprocess.run(["sh", "repro.sh"], check=True)
    assert os.listdir() == ["repro.sh"]


@pytest.mark.parametrize(
    "name", ["$(touch reached)", "`touch reached`", "a b", "-rf", "a'b;touch reached", "\x1b[2J\n", "~", "*"]
)
def test_a_name_in_a_command_to_paste_is_one_word(tmp_path, name):
    shown = shell_word(name)
    done = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {shown}"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert not os.listdir(tmp_path)
    assert done.stdout.splitlines()[0].removeprefix("./").startswith(name[:1] if name.isprintable() else "\ufffd")
    assert len(shlex.split(shown)) == 1 and not shlex.split(shown)[0].startswith("-")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "python -c 'import os'",
        "python x.py; touch y",
        "python $(touch y)",
        "'",
        "python 'x.py",
        "python x.py\ntouch y",
    ],
)
def test_a_command_that_a_finding_advises_runs_a_script_and_nothing_else(command):
    (found,) = asked("DDP707", record(*(starts(rank, command=command).finishes() for rank in range(2))))
    assert found is not None
    advised = found.remedy.partition("ddpnb run -- ")[2].partition(". Or remove")[0]
    assert advised == "python SCRIPT" or shlex.split(advised)[0] == "python"
    assert advised == shlex.join(shlex.split(advised))
    assert " -c" not in advised and " rm " not in f" {advised}"


def test_a_comment_is_one_line_of_ascii():
    for leaving in LEAVING.values():
        line = comment(leaving)
        assert line.isascii() and len(line.splitlines()) == 1 and "\0" not in line
