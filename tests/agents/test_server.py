"""The tools by the SDK's client: errors are one clear line, and permissions hold. No rank is started here."""

from __future__ import annotations

import builtins
import json
import re

import pytest

mcp = pytest.importorskip("mcp")

from ddpnb.agents.server import CONTROLLING, LOOKING, Server  # noqa: E402
from ddpnb.agents.skill import skill  # noqa: E402
from ddpnb.cli import main  # noqa: E402
from tests.agents.conversation import held  # noqa: E402


def ask(*questions, **server):
    """The answers of one server: a dictionary, or the text of the error."""

    async def asked():
        made = Server(**server)
        try:
            async with mcp.Client(made) as client:
                answers = [await client.call_tool(name, given) for name, given in questions]
        finally:
            made.sources.close()
        return [one.content[0].text if one.is_error else one.structured_content for one in answers]

    return held(asked(), 100)


@pytest.fixture(scope="module")
def hang(request):
    """A recording of a hang, with a parting."""
    folder = request.config.rootpath / "tests" / "recordings"
    known = sorted(folder.rglob("*.ddpnb"))
    for path in known:
        said = path.with_suffix(".json")
        if said.exists():
            first = (json.loads(said.read_text())["findings"] or [{}])[0]
            if first.get("parting") and (first["code"], first["certainty"]) == ("DDP301", "proven"):
                return str(path)
    raise AssertionError("no recording of a hang")


def test_every_tool_is_described_and_typed():
    async def listed():
        async with mcp.Client(Server()) as client:
            return (await client.list_tools()).tools

    tools = {tool.name: tool for tool in held(listed())}
    assert {*tools} == {*LOOKING, *CONTROLLING}
    for name, tool in tools.items():
        assert tool.output_schema["properties"].keys() >= {"limits", "next", "left_out"}, name
        for argument in tool.input_schema.get("properties", {}):
            assert re.search(rf"\b{argument}\b", tool.description), f"{name}: {argument} is not described"


def test_the_skill_names_tools_that_exist(capsys):
    assert main(["mcp", "--skill"]) == 0
    assert capsys.readouterr().out.strip() == skill()
    assert {*LOOKING, *CONTROLLING} - set(re.findall(r"\w+", skill())) == {"attach"}  # the others do it by themselves
    known = {*LOOKING, *CONTROLLING}
    assert set(re.findall(r"`(\w+)\(", skill())) <= known


WRONG = [
    ("diagnose", {}, "diagnose: the argument job is wrong: Field required."),
    ("diagnose", {"job": 7.5}, "diagnose: the argument job is wrong: Input should be a valid string."),
    ("diagnose", {"job": "x", "rank": 1}, "diagnose has no argument 'rank'. Its arguments: job."),
    ("diagnose", {"job": "no-such-job"}, "'no-such-job' is neither a job nor a file."),
    ("diagnose", {"job": "99999999"}, "there is no process 99999999."),
    ("status", {"job": "run1"}, "'run1' is neither a job nor a file."),
    ("nonsense\x1b[2J", {}, "there is no tool 'nonsense"),
    ("explain", {"what": "DDP999"}, "DDP999"),
    ("run", {"command": ["train.py"], "nproc": 2}, "run is not allowed: this server only looks."),
    ("hold", {"job": "1"}, "ddpnb mcp --control"),
]
WRONG_CONTROL = [
    ("run", {"command": []}, "no command is given."),
    ("run", {"command": ["--keep"]}, "'--keep' is no script."),
    ("run", {"command": ["a.py"], "nproc": 2, "cwd": "/no/such"}, "'/no/such' is not a folder."),
    ("run", {"command": ["a.py"], "nproc": 2, "wait": -1}, "wait"),
    ("hold", {"job": "1", "when": "step == 5"}, "--evaluate"),
    ("hold", {"job": "1", "differs": "loss.item()"}, "--evaluate"),
    ("bisect", {"command": [], "job": "bisect9"}, "there is no bisection 'bisect9'."),
]


@pytest.mark.parametrize(
    ("wrong", "options"), [(WRONG, {}), (WRONG_CONTROL, {"control": True})], ids=["look", "control"]
)
def test_wrong_use_is_one_clear_line(wrong, options):
    answers = ask(*((tool, given) for tool, given, _ in wrong), **options)
    for (tool, given, says), said in zip(wrong, answers, strict=True):
        assert isinstance(said, str), (tool, given)
        assert says in said
        assert "Traceback" not in said and "\x1b" not in said


def test_a_recording_is_diagnosed_as_a_job_is(hang, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, parted, lines, stacks, report, again, elsewhere = ask(
        ("diagnose", {"job": hang}),
        ("partings", {"job": hang}),
        ("lines", {"job": hang}),
        ("stacks", {"job": hang, "ranks": [0]}),
        ("report", {"job": hang, "file": "report.html"}),
        ("report", {"job": hang, "file": "report.html"}),
        ("report", {"job": hang, "file": "../report.md"}),
    )
    first = found["findings"][0]
    assert (first["code"], first["certainty"]) == ("DDP301", "proven")
    assert first["culprits"] and first["fix"] and first["limits"] and first["means"]
    assert first["data"]["parting"]["line"] == parted["partings"][0]["data"]["line"]
    assert lines["lines"]
    assert stacks["missing"] == [] or stacks["stacks"] == []
    assert "DDP301" in report["codes"] and "DDP301" in report["data"]["text"]
    assert (tmp_path / "report.html").read_text().startswith("<!")
    assert "exists" in again and "cannot be written" in elsewhere


def test_without_the_package_a_line_says_what_to_install(monkeypatch, capfd):
    monkeypatch.setattr("ddpnb.cli.mcp.find_spec", lambda name: None)
    assert main(["mcp"]) == 2
    assert 'pip install "ddpnb[mcp]"' in capfd.readouterr().err


def test_what_a_rank_says_is_below_data(hang):
    """Words of the program are in fields named data: nowhere else does an answer quote it."""
    (found,) = ask(("diagnose", {"job": hang}))
    outside = json.dumps([{name: value for name, value in row.items() if name != "data"} for row in found["findings"]])
    words = {row["file"] for row in found["findings"][0]["data"]["where"]}
    assert words and not [word for word in words if word in outside]
    assert builtins.all(isinstance(row["data"], dict) for row in found["findings"])
