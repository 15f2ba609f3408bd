"""The calls of one function: the collective each one issues, and the conditions around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from ddpnb.lint.conditions import Condition, ExitScope, Guard, Kind, leaving, negated
from ddpnb.lint.differences import AGREEING, Values
from ddpnb.lint.known import SAME, Facts, Value
from ddpnb.lint.matching import Matching, Token, leaves, ranks_to_try
from ddpnb.lint.modules import Project
from ddpnb.lint.operations import group_of
from ddpnb.lint.scopes import Scope
from ddpnb.source.expressions import all_arguments, bare, keyword, last_name, shown


@dataclass(frozen=True, slots=True)
class Event:
    """A call of a collective, or of a function of the project."""

    node: ast.Call
    op: str | None
    called: Scope | None
    conditions: tuple[Condition, ...]
    handed_on: bool = False  # the function is passed on here, not called
    guards: tuple[Guard, ...] = ()  # the branches around it


class Knowledge(Protocol):
    """What the walk needs to know about the whole project."""

    project: Project
    facts: Facts

    def operation(self, scope: Scope, call: ast.Call) -> str | None: ...
    def tokens(self, scope: Scope, call: ast.Call) -> Sequence[Token]: ...
    def all_of(self, scope: Scope) -> Sequence[Token]: ...
    def makes_calls(self, expr: ast.expr) -> bool: ...


class Calling:
    """The position of a walk through a function, and the calls found so far."""

    def __init__(self, knowledge: Knowledge, scope: Scope, learned: Facts, *, last: bool = True) -> None:
        self._knowledge = knowledge
        self.scope = scope
        self._learned = learned
        self._last = last  # the last pass: only then branches are compared
        self.values = Values(
            knowledge.project, knowledge.facts, learned, scope, lambda call: knowledge.operation(scope, call)
        )
        self._matching = Matching(self.values, lambda call: knowledge.tokens(scope, call))
        self.events: dict[tuple[int, tuple[str, str]], Event] = {}
        self._guards: list[Guard] = []
        self._frames: list[ExitScope] = [ExitScope("function", 0)]
        self._blocks: list[tuple[list[ast.stmt], int, str]] = []
        self._returned: list[Value] = []
        self._settled: dict[int, bool] = {}
        self._paired: dict[int, int] = {}
        self._dead = 0  # > 0: in an arm that no rank of a distributed run takes
        self._joined = 0  # > 0: under Join, which lets ranks have fewer batches
        self._sharded_state = 0

    # -- guards

    def _guard(
        self, line: int, text: str, kind: Kind, value: Value, *, matched: bool = False,
        test: ast.expr | None = None, way: bool = True,
    ) -> Guard:  # fmt: skip
        depends = bool(value.cause)
        condition = Condition(
            line, text, kind, depends, value.cause, value.words if depends else "", self.scope.path, matched
        )
        return Guard(condition, test, way)

    @contextmanager
    def _under(self, *guards: Guard) -> Iterator[None]:
        self._guards += guards
        try:
            yield
        finally:
            del self._guards[len(self._guards) - len(guards) :]

    def _standing(self) -> list[Guard]:
        guards = list(self._guards)
        for frame in self._frames:
            guards += [*frame.left, *frame.skipped]
        return guards

    def _conditions(self) -> tuple[Condition, ...]:
        conditions = dict.fromkeys(guard.condition for guard in self._standing())
        return tuple(sorted(conditions, key=lambda condition: condition.line))

    def _leave(self, kind: str) -> None:
        """A ``return``, ``continue``, ``break`` or ``raise``: some ranks may not run what follows."""
        if self._dead:
            return
        frames = self._frames
        if kind == "raise":
            if frames[-1].kind == "try" and (guard := leaving("raise", self._guards[frames[-1].base :])):
                frames[-1].add(guard)
            return
        loop = next((frame for frame in reversed(frames) if frame.kind == "loop"), None)
        if kind == "return" or loop is None:
            guard = leaving("return", self._guards)
            if guard is not None:
                frames[0].add(guard)
        elif kind == "continue":
            guard = leaving("continue", self._guards[loop.base :])
            if guard is not None:
                loop.add(guard, round_only=True)
        else:
            guard = leaving("break", self._guards[loop.base :])
            if guard is not None:
                loop.add(guard)

    # -- calls

    def _calls(self, expr: ast.expr) -> None:
        """Record the calls of an expression, each with its conditions."""
        if not self._knowledge.makes_calls(expr):
            return
        if isinstance(expr, ast.BoolOp):
            self._calls(expr.values[0])
            done: list[Guard] = []
            for test, part in zip(expr.values, expr.values[1:], strict=False):
                way = isinstance(expr.op, ast.And)
                done.append(self._arm(test, way, "and"))
                with self._under(*done):
                    self._calls(part)
        elif isinstance(expr, ast.IfExp):
            self._calls(expr.test)
            for part, way in ((expr.body, True), (expr.orelse, False)):
                with self._under(self._arm(expr.test, way, "if" if way else "else")):
                    self._calls(part)
        elif isinstance(expr, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            self._comprehension(expr)
        elif isinstance(expr, ast.Lambda):
            self._calls(expr.body)
        else:
            for child in ast.iter_child_nodes(expr):
                if isinstance(child, ast.expr):
                    self._calls(child)
                elif isinstance(child, ast.keyword):
                    self._calls(child.value)
            if isinstance(expr, ast.NamedExpr) and not self._dead:
                self.values.assign(expr.target, self.values.of(expr.value))
            if isinstance(expr, ast.Call):
                self._call(expr)

    def _arm(self, test: ast.expr, way: bool, kind: Kind) -> Guard:
        value = SAME if self._matching.outcome(test) is not None else self.values.of(test)
        text = shown(test) if way else negated(test)
        return self._guard(test.lineno, text, kind, value, test=test, way=way)

    def _comprehension(self, expr: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        guards: list[Guard] = []
        for generator in expr.generators:
            self._calls(generator.iter)
            value = self.values.of(generator.iter)
            if value.cause == "data":
                value = SAME
            text = f"for {bare(generator.target)} in {shown(generator.iter)}"
            guards.append(self._guard(generator.iter.lineno, text, "for", value))
            guards += [self._arm(test, True, "if") for test in generator.ifs]
        with self._under(*guards):
            for part in (expr.key, expr.value) if isinstance(expr, ast.DictComp) else (expr.elt,):
                self._calls(part)

    def _call(self, expr: ast.Call) -> None:
        knowledge, project = self._knowledge, self._knowledge.project
        op = knowledge.operation(self.scope, expr)
        if op is None and self._sharded_state and last_name(expr.func) == "state_dict":
            op = "state_dict"
        if op is not None:
            self._note(Event(expr, op, None, self._for_members(expr)))
            place = AGREEING.get(op)
            if place is not None and not self._dead:
                agreed = expr.args[place[0]] if len(expr.args) > place[0] else keyword(expr, place[1])
                if agreed is not None:
                    self.values.agree(agreed)
            return
        called = project.function(project.resolve(self.scope, expr.func))
        if called is not None:
            self._note(Event(expr, None, called, self._conditions()))
            for name, argument in self.values.arguments(expr, called):
                value = replace(self.values.of(argument), follows=frozenset())
                if value.cause == "rank" and not (isinstance(argument, ast.Name) and argument.id == name):
                    value = replace(value, words=f"`{name}` is `{shown(argument)}` in the call at line {expr.lineno}")
                self._learned.arguments.setdefault((called.key, name), []).append(value)
            self._agree_arguments(expr, called)
        for argument in all_arguments(expr):
            if isinstance(argument, (ast.Name, ast.Attribute)):
                self._hand_on(expr, argument)

    def _agree_arguments(self, expr: ast.Call, called: Scope) -> None:
        agreed = self._knowledge.facts.agrees.get(called.key, frozenset())
        names = [argument.arg for argument in called.parameters]
        if called.owner and names:
            names = names[1:]
        for name, argument in zip(names, expr.args, strict=False):
            if name in agreed and not self._dead:
                self.values.agree(argument)

    def _hand_on(self, call: ast.Call, argument: ast.Name | ast.Attribute) -> None:
        """A function of the project is passed as an argument: the callee may call it."""
        project = self._knowledge.project
        target = project.resolve(self.scope, argument)
        if target is None or not target.path or target.instance or target.name in project.modules[target.path].classes:
            return
        called = project.function(target)
        if called is None or self.values.outside(call.func).startswith("torch.distributed.rpc."):
            return
        self._learned.handed_on.add(called.key)
        self._note(Event(call, None, called, self._conditions(), handed_on=True))
        name = self.values.outside(call.func)
        if name in ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes") and called.parameters:
            said = f"`{called.parameters[0].arg}` is the process index passed by {name.rpartition('.')[2]}()"
            value = Value("rank", said)
            self._learned.arguments.setdefault((called.key, called.parameters[0].arg), []).append(value)

    def _note(self, event: Event) -> None:
        called = event.called.key if event.called is not None else ("", event.op or "")
        self.events[id(event.node), called] = replace(event, guards=tuple(self._guards))

    def possible(self, event: Event, given: dict[str, ast.expr]) -> bool:
        """Whether the event can happen when the function is called with these constants."""
        kept = self.values.env
        self.values.env = {**kept, **{name: Value(expr=value, plain=True) for name, value in given.items()}}
        try:
            return not any(
                guard.test is not None and self._matching.outcome(guard.test) is (not guard.way)
                for guard in event.guards
            )
        finally:
            self.values.env = kept

    def constants(self, event: Event, given: dict[str, ast.expr]) -> dict[str, ast.expr]:
        """The parameters that an event's call passes as constants, defaults included."""
        called = event.called
        if called is None or isinstance(called.node, ast.Module) or event.handed_on:
            return {}
        own, values = called.node.args, dict[str, ast.expr]()
        positional = [*own.posonlyargs, *own.args]
        for argument, default in zip(reversed(positional), reversed(own.defaults), strict=False):
            values[argument.arg] = default
        for argument, default in zip(own.kwonlyargs, own.kw_defaults, strict=True):
            if default is not None:
                values[argument.arg] = default
        unclear = any(isinstance(argument, ast.Starred) for argument in event.node.args) or any(
            argument.arg is None for argument in event.node.keywords
        )
        for name, argument in self.values.arguments(event.node, called):
            values[name] = given.get(argument.id, argument) if isinstance(argument, ast.Name) else argument
        return {} if unclear else {name: argument for name, argument in values.items() if _is_constant(argument)}

    # -- branches that issue the same calls

    def _matched(self, node: ast.If) -> bool:
        """Whether both branches of this test issue the same calls."""
        if not self._last or not self._knowledge.all_of(self.scope):
            return False
        if id(node) not in self._settled:
            self._settled[id(node)] = self._all_meet(node)
        return self._settled[id(node)]

    def _all_meet(self, node: ast.If) -> bool:
        caught = any(frame.kind == "try" for frame in self._frames)

        def same(statements: list[ast.stmt], closing: str = "") -> bool:
            return self._matching.same_for_all(statements, closing, caught=caught)

        if same([node]):
            return True
        for statements, index, closing in reversed(self._blocks):
            own = statements[index]
            for other in self._partners(statements, index):
                pair = [own, other] if statements.index(other) > index else [other, own]
                if same(pair):
                    self._paired[id(own)], self._paired[id(other)] = id(other), id(own)
                    return True
            if index + 1 < len(statements) or closing:
                rest = statements[index:]
                if any(leaves(part) for part in ast.walk(own) if isinstance(part, ast.stmt)) and same(rest, closing):
                    return True
            if isinstance(own, (ast.For, ast.AsyncFor, ast.While)):
                break
        return self._across_context(node)

    def _partners(self, statements: list[ast.stmt], index: int) -> list[ast.stmt]:
        """Sibling statements that may balance this one, nearest first; each balances one statement only."""
        own = statements[index]
        beside = [*statements[index + 1 : index + 20], *reversed(statements[max(0, index - 20) : index])]
        return [
            partner
            for partner in beside
            if isinstance(partner, (ast.If, ast.With, ast.Try))
            and self._paired.get(id(partner), id(own)) == id(own)
            and self._paired.get(id(own), id(partner)) == id(partner)
        ]

    def _across_context(self, node: ast.If) -> bool:
        """``__enter__`` and ``__exit__`` of one class are balanced."""
        _, _, name = self.scope.name.rpartition(".")
        other = {"__enter__": "__exit__", "__exit__": "__enter__"}.get(name)
        module = self._knowledge.project.modules[self.scope.path]
        partner = module.functions.get(f"{self.scope.owner}.{other}") if other else None
        if partner is None or isinstance(partner.node, ast.Module):
            return False
        others = [test for test in partner.node.body if isinstance(test, ast.If)]
        return any(self._matching.same_for_all([node, test]) for test in others)

    # -- groups

    def _for_members(self, call: ast.Call) -> tuple[Condition, ...]:
        """The conditions of a collective; only the members call one of a sub-group."""
        conditions = self._conditions()
        group = group_of(call)
        asked = [guard for guard in self._standing() if guard.condition.doubt == "strong"]
        some = self._world_of_its_own(call)
        if not asked or (group is None and some is None):
            return conditions
        name = shown(group) if group is not None else "the group"
        members = self._members(group) if group is not None else some
        tests = [(guard.test, guard.way) for guard in asked if guard.test is not None]
        held = self._matching.holds_on(tests) if len(tests) == len(asked) else None
        if members is not None and held is not None:
            tried = set(ranks_to_try(*(test for test, _ in tests)))
            absent = sorted((members & tried) - held)
            if absent:
                return conditions
        said = f"only the members of `{name}` call it"
        return tuple(
            replace(condition, matched=True, reason=f"{condition.reason}; {said}")
            if condition.doubt == "strong"
            else condition
            for condition in conditions
        )

    def _world_of_its_own(self, call: ast.Call) -> set[int] | None:
        """The ranks of init_process_group(..., world_size=2)."""
        size = keyword(call, "world_size")
        count = size.value if isinstance(size, ast.Constant) else None
        return set(range(count)) if isinstance(count, int) and 0 < count < 10_000 else None

    def _members(self, group: ast.expr) -> set[int] | None:
        """The ranks of a group, if they are literals where it is created."""
        made = self.values.of(group).expr
        if not isinstance(made, ast.Call) or self._knowledge.operation(self.scope, made) != "new_group":
            return None
        given = made.args[0] if made.args else keyword(made, "ranks")
        if isinstance(given, ast.Call) and last_name(given.func) == "list" and len(given.args) == 1:
            given = given.args[0]
        if isinstance(given, ast.Call) and last_name(given.func) == "range":
            bounds = [item.value for item in given.args if isinstance(item, ast.Constant) and type(item.value) is int]
            small = len(bounds) == len(given.args) and 0 < len(bounds) < 3 and max(bounds) < 10_000
            return set(range(*bounds)) if small else None
        if isinstance(given, (ast.List, ast.Tuple)):
            ranks = {item.value for item in given.elts if isinstance(item, ast.Constant) and type(item.value) is int}
            return ranks if len(ranks) == len(given.elts) else None
        return None


def _is_constant(expr: ast.expr) -> bool:
    if isinstance(expr, ast.UnaryOp):
        expr = expr.operand
    return isinstance(expr, ast.Constant)
