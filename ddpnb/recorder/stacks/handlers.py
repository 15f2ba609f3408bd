"""Whether something on the stack may handle an exception, by the bytecode of the handlers around each call.

``finally`` and an ``except`` that always raises again let it pass. An ``except`` of other classes does, too. A ``with`` does if its manager is
known and never suppresses. Whatever cannot be known may handle it.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import inspect
import io
from ast import Attribute, Call, Name, expr, parse
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from linecache import getline
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from ddpnb.recorder.stacks.path_codes import exception_table

_MOST = 2000  # instructions of a handler that are followed
_MOST_CODES = 2000
_DEEPEST = 4  # managers that are made by generators, within each other
_UNKNOWN: Any = object()
_BUILTINS: Any = vars(builtins)
_FILES = {builtins.open, io.open, io.BytesIO, io.StringIO}
_NOTHING = ("RETURN_CONST", "RETURN_VALUE")
# The special methods by which C asks what an object is, and clears the exception that says that it is not.
_ATTRIBUTES, _SIZES = ("__getattr__", "__getattribute__"), ("__len__", "__length_hint__")
_READS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
Names = Mapping[str, Any]
Class = type[BaseException] | None


class _Handlers:
    """The exception table of a function, and its instructions, once they are asked for."""

    def __init__(self, code: CodeType) -> None:
        self.code = code  # kept, so that its id stays its own
        self._table = exception_table(code.co_exceptiontable)
        self.doubts: dict[tuple[int, Class], str] = {}  # by where an exception of a class is raised: what may handle it

    def at(self, offset: int) -> int | None:
        """Where the handler of what is raised at an offset begins; None: it leaves the function."""
        return next((target for start, end, target in self._table if start <= offset < end), None)

    @cached_property
    def steps(self) -> dict[int, tuple[dis.Instruction, int]]:
        """By offset: the instruction, and the offset of the next one."""
        found = [*dis.get_instructions(self.code)]
        return {one.offset: (one, behind.offset) for one, behind in zip(found, [*found[1:], found[-1]], strict=True)}

    def before(self, offset: int) -> Iterator[dis.Instruction]:
        """The instructions in front of one, the last one first."""
        order = [*self.steps]
        return (self.steps[at][0] for at in reversed(order[: order.index(offset)]))


_known: dict[int, _Handlers] = {}


def _handlers(code: CodeType) -> _Handlers:
    found = _known.get(id(code))
    if found is None:
        if len(_known) >= _MOST_CODES:
            _known.clear()
        found = _known[id(code)] = _Handlers(code)
    return found


def may_handle(
    code: CodeType, offset: int, names: Callable[[], Names], error: Class, depth: int = 0
) -> tuple[str, Class]:
    """What in a function may handle an exception that is raised at this offset of it.

    Args:
        code: of the function.
        offset: of the instruction.
        names: the variables that its handlers name.
        error: the class of the exception; None: any.
        depth: how many managers led here.

    Returns:
        What, in words, empty if nothing does; and the class of the exception that leaves the function then.
    """
    handlers = _handlers(code)
    first = handlers.at(offset)
    if first is None:
        return "", error
    known = handlers.doubts.get((offset, error))  # most exceptions are handled, again and again in the same place
    if known:
        return known, error
    walk = _Walk(handlers, names, error, depth)
    words = walk.words(first)
    if words and len(handlers.doubts) < _MOST:
        handlers.doubts[offset, error] = words
    return words, walk.error


class _Walk:
    """Follows handlers from where they begin to where the exception is raised again, or handled."""

    def __init__(self, handlers: _Handlers, names: Callable[[], Names], error: Class, depth: int) -> None:
        self._handlers, self.error, self._depth = handlers, error, depth
        self._names = names()
        self._line = 0

    def words(self, first: int) -> str:
        seen, ways = set[int](), [first]
        while ways:
            offset = ways.pop()
            if offset in seen:
                continue
            seen.add(offset)
            if len(seen) > _MOST or offset not in self._handlers.steps:
                return "a handler that is too long to be read"
            following = self._from(offset)
            if following is None:
                return f"line {self._line} of {self._handlers.code.co_name}"
            ways += following
        return ""

    def _from(self, offset: int) -> list[int] | None:
        """Where it continues from an instruction; None: there it may be handled."""
        one, behind = self._handlers.steps[offset]
        if one.positions is not None and one.positions.lineno:
            self._line = one.positions.lineno
        name = one.opname
        if name in ("RERAISE", "RAISE_VARARGS"):
            if one.arg and name == "RAISE_VARARGS":
                self.error = None  # another one, in its place
            outer = self._handlers.at(offset)
            return [outer] if outer is not None else []
        if name == "POP_EXCEPT":
            return [behind] if self._handlers.steps[behind][0].opname == "RERAISE" else None
        if name in _NOTHING or name == "CHECK_EG_MATCH":
            return None
        if name in ("CHECK_EXC_MATCH", "WITH_EXCEPT_START"):
            return self._decided(one, behind)
        if name.startswith(("POP_JUMP", "FOR_ITER", "SEND")):
            return [behind, one.argval]
        return [one.argval] if name.startswith("JUMP") else [behind]

    def _decided(self, one: dis.Instruction, at: int) -> list[int] | None:
        """Behind ``except`` or ``with``: the way that an exception of this class takes."""
        fits = self._caught(one.offset) if one.opname == "CHECK_EXC_MATCH" else self._suppressed(one)
        jump, behind = self._handlers.steps[at]
        if jump.opname == "TO_BOOL":
            jump, behind = self._handlers.steps[behind]
        if fits is None or jump.opname not in ("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"):
            return None
        return [jump.argval] if fits == (jump.opname == "POP_JUMP_IF_TRUE") else [behind]

    def _caught(self, offset: int) -> bool | None:
        """Whether an ``except`` names the class of the exception, or one above it; None: not known."""
        before = list[dis.Instruction]()
        for one in self._handlers.before(offset):
            if not one.opname.startswith(("LOAD_", "BUILD_TUPLE")):
                break
            before.append(one)
        stack: list[Any] = []
        for one in reversed(before):
            self._push(stack, one)
        named = stack[-1] if stack and self.error is not None else _UNKNOWN
        mro = self.error.__mro__ if self.error is not None else ()
        classes: Any = named if isinstance(named, tuple) else (named,)
        if any(one in mro for one in classes if isinstance(one, type)):
            return True
        return False if all(isinstance(one, type) for one in classes) else None

    def _push(self, stack: list[Any], one: dis.Instruction) -> None:
        if one.opname == "LOAD_ATTR" and stack:
            stack[-1] = attribute(stack[-1], one.argval)
        elif one.opname == "BUILD_TUPLE" and one.arg and len(stack) >= one.arg:
            stack[-one.arg :] = [tuple(stack[-one.arg :])]
        else:
            stack += [self._value(name) for name in (one.argval if isinstance(one.argval, tuple) else (one.argval,))]

    def _value(self, name: Any) -> Any:
        return self._names.get(name, _UNKNOWN) if isinstance(name, str) else _UNKNOWN

    def _suppressed(self, one: dis.Instruction) -> bool | None:
        """Whether the manager of a ``with`` suppresses exceptions; None: it is not known."""
        if one.positions is None:
            return None
        manager = _expression(self._handlers.code.co_filename, one.positions)
        if manager is None:
            return None
        called = isinstance(manager, Call)
        value = self._named(manager.func if isinstance(manager, Call) else manager)
        return None if value is _UNKNOWN or self._may_suppress(value, called) else False

    def _may_suppress(self, value: Any, called: bool) -> bool:
        """Whether ``with value:``, or with what a call of it returns, may suppress the exception."""
        if called and not isinstance(value, type):
            return not any(value is one for one in _FILES) and self._in_generator(value)
        leaves = attribute(value if called else type(value), "__exit__")
        if isinstance(leaves, FunctionType):
            return not _returns_nothing(leaves.__code__)
        return leaves is _UNKNOWN  # in C: files, locks and torch's guards suppress nothing

    def _in_generator(self, value: Any) -> bool:
        """Whether a manager that a generator makes may handle what is raised at its ``yield``."""
        made = _made(value)
        if made is None or self._depth >= _DEEPEST:
            return True
        names = ChainMap(made.__globals__, _BUILTINS)
        steps = _handlers(made.__code__).steps.values()
        yields = [one.offset for one, _ in steps if one.opname == "YIELD_VALUE"]
        return any(
            may_handle(made.__code__, offset, lambda: names, self.error, self._depth + 1)[0] for offset in yields
        )

    def _named(self, node: expr) -> Any:
        if isinstance(node, Name):
            return self._value(node.id)
        return attribute(self._named(node.value), node.attr) if isinstance(node, Attribute) else _UNKNOWN


def _expression(file: str, at: dis.Positions) -> expr | None:
    """The expression at a place of a file; None: its text cannot be read."""
    lines = [getline(file, number) for number in range(at.lineno or 1, (at.end_lineno or 0) + 1)]
    if not lines or at.col_offset is None:
        return None
    coded = [line.encode() for line in lines]
    coded[-1] = coded[-1][: at.end_col_offset]
    coded[0] = coded[0][at.col_offset :]
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        return parse(b"(" + b"".join(coded) + b")", mode="eval").body
    return None


def attribute(value: Any, name: str) -> Any:
    """An attribute, without running code of the user's."""
    if value is _UNKNOWN:
        return _UNKNOWN
    if isinstance(value, ModuleType):
        return vars(value).get(name, _UNKNOWN)
    found = inspect.getattr_static(value, name, _UNKNOWN)
    if isinstance(found, property):
        return _UNKNOWN
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _made(value: Any) -> Any:
    """The generator function of which ``contextmanager`` has made this."""
    value = value.__func__ if isinstance(value, MethodType) else value
    made = vars(value).get("__wrapped__") if isinstance(value, FunctionType) else None
    return made if isinstance(made, FunctionType) and value.__code__.co_filename == contextlib.__file__ else None


def _returns_nothing(code: CodeType) -> bool:
    """Whether a function returns only None or False."""
    found = [*dis.get_instructions(code)]
    for before, one in zip([*found[:1], *found], found, strict=False):
        value = before.argval if before.opname == "LOAD_CONST" and one.opname == "RETURN_VALUE" else one.argval
        if one.opname in _NOTHING and value is not None and value is not False:
            return False
        if one.opname == "RETURN_VALUE" and before.opname != "LOAD_CONST":
            return False
    return True


def names_of(frame: FrameType) -> Names:
    """The names that a frame sees."""
    return ChainMap(frame.f_locals, frame.f_globals, _BUILTINS)


def may_be_cleared(frame: FrameType, error: BaseException) -> bool:
    """Whether C code between a frame and its caller may take this exception for an answer, as ``hasattr`` does."""
    name, caller = frame.f_code.co_name, frame.f_back
    if name == "__del__":
        return True
    if caller is None or not isinstance(error, (AttributeError, IndexError, TypeError)):
        return False
    asks = dis.opname[caller.f_code.co_code[caller.f_lasti]] if caller.f_lasti >= 0 else ""
    if isinstance(error, AttributeError):
        return not asks.startswith(_READS) and (name in _ATTRIBUTES or _is_property(frame))
    if isinstance(error, IndexError):
        return name == "__getitem__" and not asks.startswith("BINARY_")
    return name in _SIZES


def _is_property(frame: FrameType) -> bool:
    code = frame.f_code
    if not code.co_argcount:
        return False
    owner = frame.f_locals.get(code.co_varnames[0])
    found = inspect.getattr_static(type(owner), code.co_name, None)
    return found is not None and not isinstance(found, (FunctionType, staticmethod, classmethod))
