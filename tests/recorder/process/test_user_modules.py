"""Which modules of the user are imported again: all by a script, by a function those that were edited."""

from __future__ import annotations

import importlib
import os
import sys

import pytest

from ddpnb.recorder.process.user_modules import UserModules


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Two modules of the user, one of which uses the other."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "its_model.py").write_text("state = {}\n")
    (tmp_path / "its_training.py").write_text("import its_model\n")
    yield tmp_path
    for name in ("its_model", "its_training"):
        sys.modules.pop(name, None)


@pytest.fixture
def modules(monkeypatch):
    """Only the modules of the project are the user's."""
    monkeypatch.setattr("ddpnb.recorder.process.user_modules.is_user_file", lambda path: "its_" in path)
    return UserModules()


def one_run(modules, *, is_script=False, named="its_training"):
    modules.begin()
    modules.forget(everything=is_script)
    module = importlib.import_module(named)
    modules.end(is_script=is_script)
    return module.its_model


def test_a_function_finds_what_earlier_ones_have_left_in_a_module(project, modules):
    one_run(modules).state["model"] = 1
    assert one_run(modules).state == {"model": 1}


def test_an_edited_module_is_imported_again_with_those_that_use_it(project, modules):
    before = one_run(modules)
    (project / "its_model.py").write_text("state = {'edited': True}\n")
    after = one_run(modules)
    assert after is not before and after.state == {"edited": True}
    assert one_run(modules) is after


def test_one_that_was_edited_while_it_ran_is_imported_again(project, modules):
    modules.begin()
    before = importlib.import_module("its_training").its_model
    path = project / "its_model.py"
    path.write_text("state = {'edited': True}\n")
    later = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))
    modules.end(is_script=False)
    assert one_run(modules) is not before


def test_a_module_whose_file_is_of_the_future_is_imported_again_once(project, modules):
    path = project / "its_model.py"
    later = path.stat().st_mtime_ns + 3600 * 10**9  # the clock was set back since
    os.utime(path, ns=(later, later))
    before = one_run(modules)
    after = one_run(modules)
    after.state["model"] = 1
    assert after is not before and one_run(modules).state == {"model": 1}
    path.write_text("state = {'edited': True}\n")
    assert one_run(modules).state == {"edited": True}


def test_a_script_imports_all_again_and_leaves_nothing(project, modules):
    before = one_run(modules)
    of_script = one_run(modules, is_script=True)
    assert of_script is not before
    assert one_run(modules) is not of_script


def test_a_module_that_no_run_has_imported_is_kept(project, modules):
    modules.begin()
    modules.end(is_script=False)
    path = project / "its_model.py"
    before = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(before, before))
    by_a_cell = importlib.import_module("its_model")
    assert one_run(modules) is by_a_cell


def test_a_package_whose_import_was_interrupted_is_imported_as_a_whole(tmp_path, monkeypatch, modules):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "half_there"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import sys\nimport half_there.deep.deeper\nif sys.interrupted:\n    raise KeyboardInterrupt\nnumber = deep.deeper.number\n"
    )
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / "deeper.py").write_text("number = 3\n")
    monkeypatch.setitem(sys.modules, "registered.by_hand", sys)  # of no package, and loaded before
    monkeypatch.setattr(sys, "interrupted", True, raising=False)
    modules.begin()
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("half_there")
    monkeypatch.setattr(sys, "interrupted", False)
    modules.end(is_script=False)
    with pytest.raises(NameError):  # what Python does
        importlib.import_module("half_there")
    modules.end(is_script=False, raised=True)
    assert importlib.import_module("half_there").number == 3
    assert "registered.by_hand" in sys.modules
    for name in ("half_there", "half_there.deep", "half_there.deep.deeper"):
        del sys.modules[name]
