"""Trace statements: assignments, branches, returns. Loops stand in `loops`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeAlias, cast

from reftile.ir.core import Block
from reftile.lang.evaluation import evaluate_statically
from reftile.lang.expressions import (
    assign_target,
    evaluate,
    make_function,
)
from reftile.lang.foreign import ForeignValue
from reftile.lang.frame import (
    Exit,
    Flow,
    Frame,
    MayReturn,
    Outcome,
    Returned,
    RunTimeLoop,
    UnrolledLoop,
)
from reftile.lang.loops import trace_for, trace_while
from reftile.lang.meeting import meet
from reftile.lang.merge import join, pack, slot_types, unpack
from reftile.lang.names.debug import Keyword
from reftile.lang.operators import binary, is_run_time, truth, truth_tile
from reftile.lang.values import CELL, Foreign, Tile, Undefined

Statements: TypeAlias = list[ast.stmt]
Tail: TypeAlias = tuple[Statements, ...]
"""What follows the statements at hand, up to the end of the function, innermost first."""


def execute(frame: Frame, statements: Statements, tail: Tail = ()) -> Outcome:
    """Trace statements in order, and say how they end."""
    for position, statement in enumerate(statements):
        rest = (statements[position + 1 :], *tail)
        with frame.trace.at(frame.span(statement)):
            outcome = _statement(frame, statement, rest)
            if isinstance(outcome, MayReturn):
                outcome = _return_if(frame, statement, outcome, rest)
        if outcome is not Flow.NEXT:
            return outcome
    return Flow.NEXT


def _statement(frame: Frame, statement: ast.stmt, rest: Tail) -> Outcome:
    handler = _HANDLERS.get(type(statement))
    if handler is not None:
        handler(frame, statement)
        return Flow.NEXT
    match statement:
        case ast.If():
            return _if(frame, statement, rest)
        case ast.For():
            return trace_for(frame, statement, execute)
        case ast.With():
            return _with(frame, statement, rest)
        case ast.While():
            return trace_while(frame, statement, execute)
        case ast.Return():
            return _return(frame, statement)
        case ast.Break() | ast.Continue():
            return _leave(frame, statement)
        case _:
            what = _PYTHON_NAMES.get(type(statement), f"`{type(statement).__name__}` statements")
            raise frame.unsupported(statement, what)


class ForeignContext(Foreign):
    """What a dialect lets stand in a `with`."""

    def trace(
        self, frame: Frame, node: ast.With, target: ast.expr | None, body: Callable[[], Outcome]
    ) -> Outcome:
        """Trace the statement; `body` traces its statements, `target` stands behind `as`."""
        raise NotImplementedError


def _with(frame: Frame, node: ast.With, rest: Tail) -> Outcome:
    first, *others = node.items
    found = evaluate(frame, first.context_expr)
    if not isinstance(found, ForeignContext):
        raise frame.unsupported(node, "`with`")
    inner = ast.copy_location(ast.With(others, node.body), node) if others else None

    def body() -> Outcome:
        if inner is not None:
            return _with(frame, inner, rest)
        outcome = execute(frame, node.body)
        if outcome is not Flow.NEXT:
            what = "leaving a `with` by `return`, `break` or `continue`, or never,"
            raise frame.unsupported(node, what)
        return outcome

    return found.trace(frame, node, first.optional_vars, body)


_PYTHON_NAMES: dict[type[ast.stmt], str] = {
    ast.Try: "`try`",
    ast.With: "`with`",
    ast.ClassDef: "a class definition",
    ast.AsyncFunctionDef: "`async def`",
    ast.AsyncFor: "`async for`",
    ast.AsyncWith: "`async with`",
    ast.Delete: "`del`",
    ast.Global: "`global`",
    ast.Nonlocal: "`nonlocal`",
    ast.Match: "`match`",
    ast.Import: "`import`",
    ast.ImportFrom: "`import`",
}


def _assign(frame: Frame, node: ast.stmt) -> None:
    found = cast("ast.Assign", node)
    value = evaluate(frame, found.value)
    for target in found.targets:
        assign_target(frame, target, value)


def _assign_annotated(frame: Frame, node: ast.stmt) -> None:
    found = cast("ast.AnnAssign", node)
    if found.value is not None:
        assign_target(frame, found.target, evaluate(frame, found.value))


def _assign_augmented(frame: Frame, node: ast.stmt) -> None:
    found = cast("ast.AugAssign", node)
    if isinstance(found.target, ast.Subscript):
        owner = evaluate(frame, found.target.value)
        if isinstance(owner, ForeignValue):
            index = evaluate(frame, found.target.slice)
            before = owner.item(frame.trace, index)
            value = binary(frame.trace, type(found.op), before, evaluate(frame, found.value))
            owner.set_item(frame.trace, index, value)
            return
    if not isinstance(found.target, ast.Name):
        assign_target(frame, found.target, None)
        return
    load = ast.copy_location(ast.Name(found.target.id, ast.Load()), found.target)
    before = evaluate(frame, load)
    value = evaluate(frame, found.value)
    frame.names[found.target.id] = binary(frame.trace, type(found.op), before, value)


def _expression(frame: Frame, node: ast.stmt) -> None:
    value = cast("ast.Expr", node).value
    if isinstance(value, ast.Constant):
        return  # a docstring
    evaluate(frame, value)


def _pass(frame: Frame, node: ast.stmt) -> None:
    """Nothing."""


def _define(frame: Frame, node: ast.stmt) -> None:
    found = cast("ast.FunctionDef", node)
    frame.names[found.name] = make_function(frame, found)


def _assert(frame: Frame, node: ast.stmt) -> None:
    """`assert`: checked now if it can be, else when the kernel runs."""
    found = cast("ast.Assert", node)
    condition = evaluate(frame, found.test)
    message = "" if found.msg is None else str(evaluate_statically(frame, found.msg))
    if isinstance(condition, Tile) and condition.constant is None:
        t = frame.trace
        t.op("assert", condition.value, message=message or ast.unparse(found.test))
    elif not truth(frame.trace, condition):
        raise frame.error(
            node, "static_assert", f"assertion failed{': ' if message else ''}{message}"
        )


def _raise(frame: Frame, node: ast.stmt) -> None:
    found = cast("ast.Raise", node)
    raised = found.exc
    if isinstance(raised, ast.Call) and isinstance(raised.func, (ast.Name, ast.Attribute)):
        function = evaluate(frame, raised.func)
        if (
            isinstance(function, Keyword)
            and function.__name__ == "static_exception"
            and raised.args
        ):
            error = evaluate_statically(frame, raised.args[0])
            raise frame.error(node, "static_exception", f"{type(error).__name__}: {error}")
    raise frame.unsupported(
        node,
        "`raise`",
        "`raise ct.static_exception(...)` stops compiling; ct.assert_ checks at run time",
    )


_HANDLERS: dict[type[ast.stmt], Callable[[Frame, ast.stmt], None]] = {
    ast.Assign: _assign,
    ast.AnnAssign: _assign_annotated,
    ast.AugAssign: _assign_augmented,
    ast.Expr: _expression,
    ast.Pass: _pass,
    ast.FunctionDef: _define,
    ast.Assert: _assert,
    ast.Raise: _raise,
}


# Leaving


def _return(frame: Frame, node: ast.Return) -> Outcome:
    value = None if node.value is None else evaluate(frame, node.value)
    if not frame.is_kernel:
        return _leave_function(frame, value)
    if value is not None:
        raise frame.error(node, "return", "a kernel returns nothing", "store results with ct.store")
    frame.trace.op("return")
    return Flow.ENDED


def _leave_function(frame: Frame, value: object) -> Outcome:
    """Return from a function that is inlined; from inside a loop, by leaving that first."""
    loop = frame.loop
    if not isinstance(loop, RunTimeLoop):
        return Returned(value)
    t = frame.trace
    if t.cells:
        raise t.error("return", "a function of a pipe kernel cannot return from inside a loop")
    loop.exits.append(Exit("break", t.block, dict(frame.names), t.span, Returned(value)))
    return Flow.ENDED


def _return_if(frame: Frame, node: ast.stmt, may: MayReturn, rest: Tail) -> Outcome:
    """A loop may have ended in a `return`: what is left of the function runs only if it has not."""
    block, names = Block(), dict(frame.names)
    if isinstance(frame.loop, RunTimeLoop):
        with frame.trace.inside(block):
            _leave_function(frame, may.value)
        frame.trace.structure("if", [block], may.condition.value, types=[])
        return Flow.NEXT
    other = Block()
    result = _finish(frame, other, names, rest)
    if not isinstance(result, Returned):
        raise frame.unsupported(node, "this `return` inside a loop")
    values = [may.value, result.value]
    return Returned(meet(frame, node, may.condition, (block, other), values, "it returns"))


def _leave(frame: Frame, node: ast.Break | ast.Continue) -> Outcome:
    kind = "break" if isinstance(node, ast.Break) else "continue"
    loop = frame.loop
    if isinstance(loop, RunTimeLoop):
        loop.exits.append(Exit(kind, frame.trace.block, dict(frame.names), frame.trace.span))
        return Flow.ENDED
    if isinstance(loop, UnrolledLoop) and loop.block is not frame.trace.block:
        raise frame.error(
            node,
            "unrolled",
            f"this `{kind}` depends on the run, and the loop around it is unrolled",
            "loop over range(...) instead, or decide by something known when compiling",
        )
    return Flow.BREAK if kind == "break" else Flow.CONTINUE


# Branches


def _if(frame: Frame, node: ast.If, rest: Tail) -> Outcome:
    t = frame.trace
    condition = evaluate(frame, node.test)
    if not is_run_time(condition):
        return execute(frame, node.body if truth(t, condition) else node.orelse, rest)
    test = truth_tile(t, condition)
    before = frame.names
    then_block, else_block = Block(), Block()
    then_names = dict(before)
    then_outcome = _branch(frame, then_block, then_names, node.body, rest)
    if then_outcome is Flow.ENDED:
        # The rest runs only if the condition is false: no second region is needed.
        t.structure("if", [then_block], test.value, types=[])
        return execute(frame, node.orelse, rest)
    else_names = dict(before)
    else_outcome = _branch(frame, else_block, else_names, node.orelse, rest)
    if isinstance(then_outcome, Returned) or isinstance(else_outcome, Returned):
        return _return_from_branches(
            frame,
            node,
            test,
            (then_block, then_names, then_outcome),
            (else_block, else_names, else_outcome),
            rest,
        )
    if else_outcome is Flow.ENDED:
        _merge_one(frame, test, then_block, then_names, else_block)
        return Flow.NEXT
    _merge(frame, node, test, (then_block, else_block), (then_names, else_names))
    return Flow.NEXT


def _branch(
    frame: Frame, block: Block, names: dict[str, object], statements: Statements, rest: Tail
) -> Outcome:
    """Trace one branch in a block and with names of its own."""
    outer, frame.names = frame.names, names
    try:
        with frame.trace.inside(block):
            return execute(frame, statements, rest)
    finally:
        frame.names = outer


def _merge(
    frame: Frame,
    node: ast.If,
    condition: Tile,
    blocks: tuple[Block, Block],
    names: tuple[dict[str, object], dict[str, object]],
) -> None:
    """End both regions with the values of the names that differ; name what comes out."""
    t = frame.trace
    then_names, else_names = names
    for block, values in zip(blocks, names, strict=True):
        for cell in (n for n in (*then_names, *else_names) if n.startswith(CELL)):
            if cell not in values:
                with t.inside(block):
                    values[cell] = t.cells[cell]()
    slots = {
        name: join([_value(n, name, node) for n in names])
        for name in dict.fromkeys((*then_names, *else_names))
    }
    for block, values in zip(blocks, names, strict=True):
        with t.inside(block):
            carried = [v for name, slot in slots.items() for v in pack(t, slot, values.get(name))]
            t.op("yield", tuple(carried))
    types = [type for slot in slots.values() for type in slot_types(slot)]
    empty_else = not types and len(blocks[1].ops) == 1
    if empty_else and len(blocks[0].ops) == 1:
        op_results = iter(())
    else:
        kept = blocks[:1] if empty_else else blocks
        op_results = iter(t.structure("if", kept, condition.value, types=types).results)
    for name, slot in slots.items():
        frame.names[name] = unpack(slot, op_results)


def _value(names: dict[str, object], name: str, node: ast.If) -> object:
    found = names.get(name)
    if found is None and name not in names:
        return Undefined(
            f"only one branch of the `if` in line {node.lineno} gives it a value", node
        )
    return found


def _merge_one(
    frame: Frame,
    condition: Tile,
    then_block: Block,
    names: dict[str, object],
    else_block: Block,
) -> None:
    """The else branch has left: what comes out is what the then branch has."""
    t = frame.trace
    changed = {
        n: v for n, v in names.items() if frame.names.get(n) is not v or n not in frame.names
    }
    slots = {name: join([value], "run_time") for name, value in changed.items()}
    with t.inside(then_block):
        carried = [v for name, slot in slots.items() for v in pack(t, slot, changed[name])]
        t.op("yield", tuple(carried))
    types = [type for slot in slots.values() for type in slot_types(slot)]
    op = t.structure("if", [then_block, else_block], condition.value, types=types)
    results = iter(op.results)
    for name, slot in slots.items():
        frame.names[name] = unpack(slot, results)


def _return_from_branches(
    frame: Frame,
    node: ast.If,
    condition: Tile,
    then: tuple[Block, dict[str, object], Outcome],
    otherwise: tuple[Block, dict[str, object], Outcome],
    rest: Tail,
) -> Outcome:
    """A branch of an inlined function returns: the rest of the function moves into the other."""
    returned: list[object] = []
    for block, names, outcome in (then, otherwise):
        _check_cells(frame, node, names)
        result = outcome
        if result is Flow.NEXT:
            result = _finish(frame, block, names, rest)
        if not isinstance(result, Returned):
            raise frame.unsupported(
                node,
                "a branch that returns beside one that leaves a loop",
                "assign the result to a variable and return it after the loop",
            )
        returned.append(result.value)
    blocks = (then[0], otherwise[0])
    return Returned(meet(frame, node, condition, blocks, returned, "the function returns"))


def _check_cells(frame: Frame, node: ast.If, names: dict[str, object]) -> None:
    """What a branch that returns has changed would be lost."""
    if any(n.startswith(CELL) and frame.names.get(n) is not v for n, v in names.items()):
        raise frame.error(
            node,
            "return",
            "a branch of a function that returns changes a fragment or a buffer",
            "let the function have one `return`, at its end",
        )


def _finish(frame: Frame, block: Block, names: dict[str, object], rest: Tail) -> Outcome:
    """Trace what is left of a function at the end of a branch."""
    outer, frame.names = frame.names, names
    try:
        with frame.trace.inside(block):
            for position, statements in enumerate(rest):
                outcome = execute(frame, statements, rest[position + 1 :])
                if outcome is not Flow.NEXT:
                    return outcome
            return Returned(None)
    finally:
        frame.names = outer
