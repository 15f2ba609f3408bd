"""A walk through one function: the conditions of each of its statements and calls.

Statements are visited in order, loops twice, the branches of an ``if`` separately; on the
way the values that differ between ranks are followed.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpnb.lint import vocabulary as words
from ddpnb.lint.binding import Binds, is_none
from ddpnb.lint.conditions import ExitScope, Guard, caught, negated, swallows
from ddpnb.lint.known import PLAIN, SAME, Value, join
from ddpnb.lint.matching import leaves
from ddpnb.source.branches import FUNCTIONS
from ddpnb.source.expressions import bare, dotted, last_name, shown, whole_text


class Walk(Binds):
    """One pass over a function (or the statements of a module)."""

    def run(self) -> None:
        """Walk through it, and store what was learned in the facts."""
        node = self.scope.node
        if not isinstance(node, ast.Module):
            for decorator in node.decorator_list:
                if words.is_rank_decorator(last_name(decorator)):
                    reason = f"`@{last_name(decorator)}` runs the function on one rank, judging by its name"
                    self._guards.append(self._guard(decorator.lineno, f"@{last_name(decorator)}", "decorator",
                                                    Value("rank", reason)))  # fmt: skip
        self._block(node.body, "return" if not isinstance(node, ast.Module) else "")
        key = self.scope.key
        self._learned.variables[key] = dict(self.values.env)
        if not isinstance(node, ast.Module):
            returned = self._returned
            if not all(value.cause == "stream" or is_none(value.expr) for value in returned):
                returned = [SAME if value.cause == "stream" else value for value in returned]  # one of several values
            self._learned.returns[key] = join(*returned) if returned else PLAIN
            own = {parameter.arg for parameter in self.scope.parameters}
            self._learned.agrees[key] = frozenset(
                name for name in own if self.values.env.get(name, SAME).words == "agreed"
            )

    # -- statements

    def _block(self, statements: list[ast.stmt], closing: str = "") -> None:
        for index, statement in enumerate(statements):
            self._blocks.append((statements, index, closing))
            self._statement(statement)
            self._blocks.pop()

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._for(node)
        elif isinstance(node, ast.While):
            self._while(node)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node)
        elif isinstance(node, (ast.Try, ast.TryStar)):
            self._try(node)
        elif isinstance(node, ast.Match):
            self._match(node)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            for decorator in node.decorator_list:
                self._calls(decorator)
        else:
            self._simple(node)

    def _if(self, node: ast.If) -> None:
        self._calls(node.test)
        test = self.values.of(node.test)
        outcome = self._matching.outcome(node.test)
        if _is_main_guard(node.test):
            self._block(node.body)
            return
        if outcome is not None:
            test = SAME
        matched = bool(test.cause) and self._matched(node)
        text = shown(node.test)
        line = node.test.lineno
        yes = self._guard(line, text, "if", test, matched=matched, test=node.test)
        no = self._guard(line, negated(node.test), "else", test, matched=matched, test=node.test, way=False)
        self._arms([(yes, node.body, outcome is False), (no, node.orelse, outcome is True)], test, node.test)

    def _arms(self, arms: list[tuple[Guard, list[ast.stmt], bool]], test: Value, expr: ast.expr) -> None:
        """Take each arm from the same start; continue with what they have in common."""
        before = dict(self.values.env)
        exits = [(list(frame.left), list(frame.skipped)) for frame in self._frames]
        ends: list[dict[str, Value]] = []
        after: list[list[tuple[list[Guard], list[Guard]]]] = []
        for guard, body, dead in arms:
            self.values.env = dict(before)
            for frame, (left, skipped) in zip(self._frames, exits, strict=True):
                frame.left, frame.skipped = list(left), list(skipped)
            self._dead += dead
            with self._under(guard):
                self._block(body)
            self._dead -= dead
            if not dead:
                after.append([(frame.left, frame.skipped) for frame in self._frames])
                if not _leaves_always(body):
                    ends.append(self.values.env)
        for index, frame in enumerate(self._frames):
            frame.left, frame.skipped = list(exits[index][0]), list(exits[index][1])
            for ends_of_arm in after:
                for guard in ends_of_arm[index][0]:
                    frame.add(guard)
                for guard in ends_of_arm[index][1]:
                    frame.add(guard, round_only=True)
        self.values.env = self._merged(ends or [before], test, expr)

    def _merged(self, ends: list[dict[str, Value]], test: Value, expr: ast.expr) -> dict[str, Value]:
        merged = dict(ends[0])
        for other in ends[1:]:
            for name in {*merged, *other}:
                first, second = merged.get(name), other.get(name)
                if first is None or second is None or first == second:
                    merged[name] = first or second or SAME
                    continue
                if "stream" in (first.cause, second.cause) and first.cause != second.cause:
                    first, second = (
                        SAME if value.cause == "stream" and not is_none(value.expr) else value
                        for value in (first, second)
                    )  # one of several values
                if test.cause == "rank" and "agreed" in (first.words, second.words):
                    merged[name] = Value(words="agreed")  # the root broadcast it, the others received it
                    continue
                same_text = first.expr and second.expr and whole_text(first.expr) == whole_text(second.expr)
                both = join(first, second)
                if test.cause and not both.cause and not same_text:
                    made = None
                    if len(ends) == 2 and first.expr and second.expr:
                        made = ast.IfExp(expr, first.expr, second.expr)
                    value = self.values.chosen(test, (first, second), made)
                    if value.cause == test.cause and value.words == test.words:
                        value = replace(value, words=f"`{name}` is set under `{shown(expr)}` (line {expr.lineno})")
                    merged[name] = value
                else:
                    merged[name] = both
        return merged

    def _loop(self, body: list[ast.stmt], guard: Guard | None, prepare: ast.For | ast.AsyncFor | None = None) -> None:
        guards = (guard,) if guard is not None else ()
        frame = ExitScope("loop", len(self._guards))
        self._frames.append(frame)
        before = dict(self.values.env)
        for name in _assigned(body):
            if name in self.values.env:
                self.values.env[name] = replace(self.values.env[name], expr=None)
        start = self._state(before)
        for _ in range(2):
            frame.skipped = []
            if prepare is not None and not self._dead:
                self._targets(prepare)
            with self._under(*guards):
                self._block(body, "continue")
            self.values.env = self._merged([self.values.env, before], SAME, ast.Constant(None))
            if self._state(before) == start:  # another pass would learn nothing
                break
        self._frames.pop()

    def _state(self, names: dict[str, Value]) -> tuple[object, ...]:
        causes = tuple(self.values.env.get(name, SAME).cause for name in names)
        return causes, tuple(len(frame.left) for frame in self._frames)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self._calls(node.iter)
        value = self.values.of(node.iter)
        if value.cause == "data":  # the parts of a batch: usually equally many
            value = SAME
        text = f"for {bare(node.target)} in {shown(node.iter)}"
        self._loop(node.body, self._guard(node.lineno, text, "for", value, matched=self._joined > 0), node)
        self._block(node.orelse)

    def _while(self, node: ast.While) -> None:
        self._calls(node.test)
        value = SAME if self._matching.outcome(node.test) is not None else self.values.of(node.test)
        always = isinstance(node.test, ast.Constant)
        guard = None if always else self._guard(node.lineno, shown(node.test), "while", value,
                                                matched=self._joined > 0, test=node.test)  # fmt: skip
        self._loop(node.body, guard)
        self._calls(node.test)
        self._block(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        swallowing = joined = sharded = False
        for item in node.items:
            self._calls(item.context_expr)
            name = last_name(item.context_expr)
            swallowing |= name == "suppress"
            joined |= name == "Join"
            sharded |= name == "state_dict_type"
            if item.optional_vars is not None and not self._dead:
                self.values.assign(item.optional_vars, self.values.of(item.context_expr))
        self._joined += joined
        self._sharded_state += sharded
        if swallowing:
            self._guarded(node.body, node.lineno, "suppress()")
        else:
            self._block(node.body)
        self._joined -= joined
        self._sharded_state -= sharded

    def _guarded(self, body: list[ast.stmt], line: int, text: str) -> None:
        """Statements whose exceptions are swallowed: everything after the first may be skipped."""
        self._frames.append(ExitScope("try", len(self._guards)))
        reason = f"line {line} swallows an exception raised before it, and the rank continues without it"
        failing = self._guard(line, text, "try", Value("failure", reason))
        for index, statement in enumerate(body):
            alone = index == 0 and self._only_collective(statement)
            with self._under(*(() if alone else (failing,))):
                self._blocks.append((body, index, ""))
                self._statement(statement)
                self._blocks.pop()
        self._frames.pop()

    def _only_collective(self, node: ast.stmt) -> bool:
        """Whether a statement only issues one collective, so that nothing before it can fail."""
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
        made = [call for call in calls if self._knowledge.operation(self.scope, call)]
        return isinstance(node, (ast.Expr, ast.Assign)) and len(made) == 1 and len(calls) <= 2

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        raised = self._knowledge.facts.raised
        handler = swallows(node.handlers, raised)
        before = dict(self.values.env)
        if handler is not None:
            text, _ = caught(handler, raised)
            self._guarded(node.body, handler.lineno, f"except {text}".strip())
        else:
            self._block(node.body)
        self._block(node.orelse)
        ends = [self.values.env]
        for handler in node.handlers:
            self.values.env = self._merged([dict(before), ends[0]], SAME, ast.Constant(None))
            text, cause = caught(handler, raised)
            shared = {"failure": "only ranks that raised the exception get here",
                      "data": "a rank whose data end earlier gets here earlier"}  # fmt: skip
            guard = self._guard(handler.lineno, text, "except", Value(cause, shared.get(cause, "")))
            with self._under(guard):
                self._block(handler.body)
            if not _leaves_always(handler.body):
                ends.append(self.values.env)
        self.values.env = self._merged(ends, SAME, ast.Constant(None))
        if node.finalbody:
            reason = "a rank that failed gets here before the others, out of order"
            ran = any(isinstance(part, ast.Call) for statement in node.body for part in ast.walk(statement))
            value = Value("failure", reason) if ran else SAME
            with self._under(self._guard(node.finalbody[0].lineno, "finally", "finally", value)):
                self._block(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        self._calls(node.subject)
        value = self.values.of(node.subject)
        matched = self._last and bool(value.cause) and self._matching.same_for_all([node])
        arms: list[tuple[Guard, list[ast.stmt], bool]] = []
        for case in node.cases:
            text = f"{shown(node.subject)} is {shown(case.pattern)}"
            guard = self._guard(case.pattern.lineno, text, "case", value, matched=matched)
            arms.append((guard, case.body, False))
        self._arms(arms, value, node.subject)


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _leaves_always(body: list[ast.stmt]) -> bool:
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves_always(last.body) and _leaves_always(last.orelse)
    return bool(leaves(last))


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Names that statements bind."""
    names: set[str] = set()
    for statement in body:
        for part in ast.walk(statement):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.add(part.id)
            elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                names.add(dotted(part) or "")
    return names
