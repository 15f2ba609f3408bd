"""The public names: what a public method returns is exported, and each method says what one needs to know."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ddpnb

CLASSES = [getattr(ddpnb, name) for name in ddpnb.__all__ if inspect.isclass(getattr(ddpnb, name))]
FUNCTIONS = [getattr(ddpnb, name) for name in ddpnb.__all__ if inspect.isfunction(getattr(ddpnb, name))]
#: their methods are called by users: each has a docstring with all sections
CALLED = [ddpnb.World, ddpnb.Run, ddpnb.Startup, ddpnb.Holding, ddpnb.Injection]
PRODUCT = Path(ddpnb.__file__).parent


def public(kind):
    """Name -> function of each public method and property that this class defines."""
    members = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    found = {name: member.fget for name, member in members.items() if isinstance(member, property)}
    return found | {name: member for name, member in members.items() if isinstance(member, types.FunctionType)}


METHODS = [
    pytest.param(kind, function, id=f"{kind.__name__}.{name}")
    for kind in CALLED
    for name, function in public(kind).items()
]
METHODS += [pytest.param(None, function, id=function.__name__) for function in FUNCTIONS]


def ours():
    """The names of all classes of the package."""
    texts = [path.read_text() for path in PRODUCT.rglob("*.py") if "pitfalls" not in path.parts]
    return {name for text in texts for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE)}


OURS = ours()


@pytest.mark.parametrize(("kind", "function"), METHODS)
def test_what_a_public_method_returns_is_exported(kind, function):
    returned = str(inspect.signature(function).return_annotation)
    hidden = {name for name in re.findall(r"[A-Z]\w+", returned) if name in OURS} - {*ddpnb.__all__}
    assert not hidden, f"export {hidden} in ddpnb/__init__.py"


@pytest.mark.parametrize(("kind", "function"), METHODS)
def test_a_public_method_documents_itself(kind, function):
    text = inspect.getdoc(function) or ""
    assert text
    if kind is not None and isinstance(vars(kind).get(function.__name__), property):
        return
    signature = inspect.signature(function)
    sections = ["Example:"]
    sections += ["Args:"] if len(signature.parameters) > (kind is not None) else []
    sections += ["Returns:"] if str(signature.return_annotation) != "None" else []
    assert not [section for section in sections if f"\n{section}\n" not in text]
    for name in [name for name in signature.parameters if name != "self"]:
        assert re.search(rf"\n    (\w+, )*{name}(, \w+)*: ", text), f"{name} is not documented"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_public_class_is_documented(kind):
    text = inspect.getdoc(kind) or ""
    assert text and not text.startswith(f"{kind.__name__}("), "its docstring is the one that dataclass writes"


def test_one_spelling_for_the_same_parameter():
    names = {name for kind in CALLED for f in public(kind).values() for name in inspect.signature(f).parameters}
    assert not names & {"wait", "rank_list", "seconds", "time_out", "which"}
    for kind in CALLED:
        for function in public(kind).values():
            for name, parameter in inspect.signature(function).parameters.items():
                if name == "timeout":
                    assert "float" in str(parameter.annotation)
                if name == "ranks":
                    assert str(parameter.annotation) == "int | Iterable[int] | None"


def test_names_are_imported_when_they_are_used():
    code = (
        "import sys, ddpnb\nfound = {name for name in sys.modules if name.startswith('ddpnb.')}\n"
        "assert found <= {'ddpnb.private_builtins', 'ddpnb.recording', 'ddpnb.recording.writers'}, found\nddpnb.Finding\ndir(ddpnb)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


def test_dir_shows_what_is_public():
    assert {*dir(ddpnb)} == {"__version__", *ddpnb.__all__}
