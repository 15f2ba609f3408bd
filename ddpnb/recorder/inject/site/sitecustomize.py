"""Python runs this first in every process of a job that ``ddpnb run`` starts: its folder is on their PYTHONPATH.

Most of these processes are no ranks. Only the import of torch is noticed here; what follows is in
``ddpnb.recorder.inject.activation``, which is loaded from where ddpnb lies: the job may use another environment. This file must
run on any Python 3.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
_JOB, _RECORD, _HOSTS = "DDPNB_JOB", "DDPNB_RECORD", "DDPNB_HOSTS"


class _Finder:
    """Finds torch as Python would, and calls ``activate`` once it has been imported.

    A script that imports ddpnb (``ddpnb.checkpoint``) gets the one that records it, whichever its environment has.
    """

    def find_spec(self, name, path=None, target=None):
        if name == "ddpnb":
            return _spec()
        if name != "torch":
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module):
            vars(loader).pop("exec_module", None)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                execute(module)
            except BaseException as error:  # such as Ctrl-C: the traceback is the program's
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            _with(lambda activation: activation.torch_imported())

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader of another kind
            pass
        return spec


def _with(use):
    """Call ``use`` with ``ddpnb.recorder.inject.activation``. The job continues in any case."""
    try:
        use(_activation())
    except Exception as error:
        _refuse("%s: %s" % (type(error).__name__, error))


def _activation():
    from importlib import import_module, util

    if "ddpnb" not in sys.modules:
        spec = _spec()
        module = util.module_from_spec(spec)  # pyright: ignore[reportArgumentType]
        sys.modules["ddpnb"] = module
        spec.loader.exec_module(module)  # pyright: ignore[reportOptionalMemberAccess]
    return import_module("ddpnb.recorder.inject.activation")


def _spec():
    """That of the ddpnb which this file belongs to."""
    from importlib import util

    package = os.path.join(_ROOT, "ddpnb")
    return util.spec_from_file_location(
        "ddpnb", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )


def _refuse(why):
    """Tell the launcher that this process is not recorded."""
    try:
        path = os.path.join(os.environ[_JOB], "refused-%d" % os.getpid())
        with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write("%s\n%s" % (sys.executable, why[:500]))
    except (OSError, KeyError):
        pass


def _next_sitecustomize():
    """Import the sitecustomize that Python would have imported without this one."""
    mine = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        if mine is not None:
            sys.modules.setdefault(__name__, mine)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
if os.path.isdir(os.environ.get(_JOB, "")) or _RECORD in os.environ or _HOSTS in os.environ:  # each host makes its own
    if sys.version_info < (3, 11):
        _refuse("Python %d.%d is too old: the recorder needs 3.11 or later." % sys.version_info[:2])
    else:
        if "DDPNB_START" in os.environ or os.environ.get("DDPNB_RANK_OF", "").startswith("%d:" % os.getpid()):
            _with(lambda activation: activation.rank_started())
        sys.meta_path.insert(0, _Finder())
if __name__ == "sitecustomize":
    _next_sitecustomize()
