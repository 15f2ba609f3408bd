"""What a process has loaded for itself does not stand in the way of the user's modules, and serves its own threads."""

from __future__ import annotations

import builtins
import importlib
import queue
import statistics
import sys
import threading

import pytest

from ddpnb.recorder.process.hidden_modules import HiddenModules


class OwnThread:
    """A thread that was there before a script began: it calls what it is given."""

    def __init__(self):
        self._calls, self._results = queue.Queue(), queue.Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while (function := self._calls.get()) is not None:
            try:
                self._results.put(function())
            except BaseException as error:
                self._results.put(error)

    def call(self, function):
        self._calls.put(function)
        return self._results.get(timeout=20)

    def end(self):
        self._calls.put(None)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The folder of a stack that is loaded, and the user's; the user's comes first on the path."""
    stack, user = tmp_path / "stack", tmp_path / "user"
    for folder in (stack, user):
        folder.mkdir()
    (stack / "ddpnbstack").mkdir()
    (stack / "ddpnbstack" / "__init__.py").write_text(
        "whose = 'stack'\ndef find_late():\n    from . import late\n    return late\n"
    )
    (stack / "ddpnbstack" / "loaded.py").write_text("whose = 'stack'\n")
    (stack / "ddpnbstack" / "late.py").write_text("from ddpnbstack.loaded import whose\n")
    (stack / "ddpnbother.py").write_text("whose = 'stack'\n")
    monkeypatch.setattr(sys, "path", [str(stack), *sys.path])
    modules = HiddenModules()
    for name in ("ddpnbstack", "ddpnbstack.loaded", "ddpnbother"):
        importlib.import_module(name)
    modules.note_stack()
    monkeypatch.setattr(sys, "path", [str(user), *sys.path])
    yield modules, user
    for name in [name for name in sys.modules if name.startswith(("ddpnbstack", "ddpnbother", "ddpnbuser"))]:
        del sys.modules[name]


@pytest.fixture
def own_thread():
    thread = OwnThread()
    yield thread
    thread.end()


def test_without_a_module_of_the_users_the_loaded_one_is_found(folders):
    modules, _ = folders
    loaded, part = sys.modules["ddpnbstack"], sys.modules["ddpnbstack.loaded"]
    spec, real_import = loaded.__spec__, builtins.__import__
    with modules.hidden():
        assert "ddpnbstack" not in sys.modules
        assert builtins.__import__ is real_import
        import ddpnbstack

        assert ddpnbstack is loaded
        assert ddpnbstack.__spec__ is spec
        assert sys.modules["ddpnbstack.loaded"] is part
        assert importlib.import_module("ddpnbstack.late").whose == "stack"
        assert importlib.util.find_spec("ddpnbother").origin.endswith("ddpnbother.py")
    assert sys.modules["ddpnbstack"] is loaded


def test_a_module_of_the_users_is_found_and_gone_afterwards(folders, own_thread):
    modules, user = folders
    loaded, real_import = sys.modules["ddpnbstack"], builtins.__import__
    (user / "ddpnbstack").mkdir()
    (user / "ddpnbstack" / "__init__.py").write_text("whose = 'user'\n")
    (user / "ddpnbstack" / "loaded.py").write_text("whose = 'user'\n")
    with modules.hidden():
        import ddpnbstack.loaded

        assert (ddpnbstack.whose, ddpnbstack.loaded.whose) == ("user", "user")
        assert importlib.import_module("ddpnbstack").whose == "user"
        with pytest.raises(ModuleNotFoundError):
            import ddpnbstack.late

        def imports():
            import ddpnbstack as top
            import ddpnbstack.late as again
            from ddpnbstack import late  # noqa: I001
            from ddpnbstack import loaded as part

            return top is loaded, part.whose, late.whose, again is late, top.late is late

        assert own_thread.call(imports) == (True, "stack", "stack", True, True)
        assert sys.modules["ddpnbstack"].whose == "user"
        assert loaded.find_late().whose == "stack"  # what is loaded finds its own on every thread
    assert builtins.__import__ is real_import
    assert sys.modules["ddpnbstack"] is loaded
    assert sys.modules["ddpnbstack.loaded"].whose == "stack"


def test_a_folder_that_the_script_adds_to_its_path(folders, own_thread):
    modules, user = folders
    (user / "lib").mkdir()
    (user / "lib" / "ddpnbother.py").write_text("whose = 'user'\n")
    with modules.hidden():
        sys.path.insert(0, str(user / "lib"))
        import ddpnbother

        assert ddpnbother.whose == "user"

        def whose():
            import ddpnbother

            return ddpnbother.whose

        assert own_thread.call(whose) == "stack"
    assert sys.modules["ddpnbother"].whose == "stack"


@pytest.mark.parametrize("name", ["os", "torch", "ddpnb"])
def test_what_python_or_torch_cannot_have_twice_stays(folders, name):
    modules, user = folders
    (user / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    module = sys.modules[name] if name in sys.modules else importlib.import_module(name)
    with modules.hidden():
        assert importlib.import_module(name) is module


def test_a_module_of_the_standard_library_gives_way_as_in_a_plain_process(folders):
    modules, user = folders
    (user / "statistics.py").write_text("whose = 'user'\n")
    with modules.hidden():
        import statistics as mine

        assert mine.whose == "user"
    assert sys.modules["statistics"] is statistics


def test_a_folder_that_is_no_package_is_no_module(folders):
    """Data in a folder of this name: Python goes on along the path, and finds the installed package."""
    modules, user = folders
    (user / "ddpnbother").mkdir()
    with modules.hidden():
        import ddpnbother

        assert ddpnbother.whose == "stack"


def test_an_import_that_fails_leaves_nothing_behind(folders):
    modules, user = folders
    (user / "ddpnbother.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError), modules.hidden():
        import ddpnbother  # noqa: F401
    import ddpnbother

    assert ddpnbother.whose == "stack"
    assert builtins.__import__.__module__ == "builtins"


def test_an_import_that_the_script_wraps_is_wrapped_once(folders):
    """As an import hook that logs does; it called itself without end."""
    modules, user = folders
    for name, folder in (("ddpnbstack", user), ("ddpnbother", user / "lib")):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text("whose = 'user'\n")
    imported, plain = [], builtins.__import__
    try:
        with modules.hidden():
            first = __import__("ddpnbstack")
            below = builtins.__import__

            def logged(name, *given, **named):
                imported.append(name)
                return below(name, *given, **named)

            builtins.__import__ = logged
            sys.path.insert(0, str(user / "lib"))
            second = __import__("ddpnbother")
            __import__("json")
    finally:
        builtins.__import__ = plain
    assert (first.whose, second.whose, imported.count("ddpnbother")) == ("user", "user", 1)
    assert sys.modules["ddpnbother"].whose == "stack"


def test_modules_come_back_when_they_could_not_be_hidden(folders, monkeypatch):
    modules, _ = folders
    loaded = sys.modules["ddpnbstack"]
    monkeypatch.setattr(sys, "meta_path", tuple(sys.meta_path))
    with pytest.raises(AttributeError), modules.hidden():
        pass
    assert sys.modules["ddpnbstack"] is loaded


@pytest.mark.full
def test_a_thread_that_imports_while_modules_are_hidden_and_come_back_loads_none_again(folders):
    modules, _ = folders
    loaded = sys.modules["ddpnbstack.loaded"]
    over = threading.Event()
    others = []

    def imports():
        while not over.is_set():
            module = importlib.import_module("ddpnbstack.loaded")
            if module is not loaded:
                others.append(module)

    thread = threading.Thread(target=imports, daemon=True)
    thread.start()
    for _ in range(40):
        with modules.hidden():
            pass
    over.set()
    thread.join(20)
    assert not others and sys.modules["ddpnbstack.loaded"] is loaded
