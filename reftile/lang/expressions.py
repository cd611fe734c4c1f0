"""Evaluate expressions: what is known now is computed, the rest becomes operations."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from reftile.ir.core import Block, Op
from reftile.lang import arithmetic
from reftile.lang.calls import call
from reftile.lang.evaluation import evaluate_statically
from reftile.lang.foreign import ForeignValue
from reftile.lang.frame import UNKNOWN, Frame
from reftile.lang.meeting import HARMLESS, meet
from reftile.lang.names.debug import Keyword
from reftile.lang.operators import (
    binary,
    compare,
    is_run_time,
    static,
    truth,
    truth_tile,
    unary,
)
from reftile.lang.reading import format_value, read_attribute, read_item
from reftile.lang.source import FunctionSource, assigned_names
from reftile.lang.trace import static_number
from reftile.lang.values import (
    Array,
    Foreign,
    FormattedText,
    FormattedTile,
    LocalFunction,
    Tile,
    Token,
    Undefined,
    describe,
    is_static,
    items_of,
)

Evaluator = Callable[[Frame, ast.AST], object]


def evaluate(frame: Frame, node: ast.AST) -> object:
    """The value of an expression."""
    handler = _HANDLERS.get(type(node))
    with frame.trace.at(frame.span(node)):
        if handler is None:
            what = _PYTHON_NAMES.get(type(node), f"`{type(node).__name__}` expressions")
            raise frame.unsupported(node, what)
        return handler(frame, node)


_PYTHON_NAMES: dict[type[ast.AST], str] = {
    ast.Set: "a set",
    ast.SetComp: "a set",
    ast.DictComp: "a dictionary comprehension",
    ast.Yield: "`yield`",
    ast.YieldFrom: "`yield`",
    ast.Await: "`await`",
}


def _constant(frame: Frame, node: ast.AST) -> object:
    value = cast("ast.Constant", node).value
    if isinstance(value, (complex, bytes)):
        raise frame.unsupported(node, f"{type(value).__name__} constants")
    return value


def _name(frame: Frame, node: ast.AST) -> object:
    name = cast("ast.Name", node).id
    value = frame.names.get(name, UNKNOWN)
    if value is UNKNOWN and name in frame.local_names:
        value = Undefined("it has no value yet at this place")
    if value is UNKNOWN:
        value = frame.lookup(name)
    if value is UNKNOWN:
        raise frame.error(node, "name", f"`{name}` is not defined")
    if isinstance(value, Undefined):
        raise frame.error(
            node,
            "undefined",
            f"`{name}` has no definite value here: {value.why}",
            "give it a value of one type on every path that leads here",
        )
    return value


def _tuple(frame: Frame, node: ast.AST) -> object:
    items: list[object] = []
    for item in cast("ast.Tuple", node).elts:
        if isinstance(item, ast.Starred):
            items.extend(iterate(frame, item.value, evaluate(frame, item.value)))
        else:
            items.append(evaluate(frame, item))
    return items if isinstance(node, ast.List) else tuple(items)


def iterate(frame: Frame, node: ast.AST, value: object) -> list[object]:
    """The items of something whose number of items is known."""
    if (found := items_of(value)) is not None:
        return list(found)
    if isinstance(value, (Tile, Array)) or not is_static(value):
        raise frame.error(
            node,
            "iterate",
            f"{describe(value)} cannot be iterated over",
            "iterate over range(...), or over tuples with ct.static_iter",
        )
    most = frame.trace.options.longest_unrolling
    items = static(
        frame.trace, lambda: list(itertools.islice(cast("Iterable[object]", value), most + 1))
    )
    found = cast("list[object]", items)
    if len(found) > most:
        raise frame.error(
            node,
            "unrolled",
            f"more than {most} items are too many to unroll",
            "loop over range(...) instead",
        )
    return found


def _dict(frame: Frame, node: ast.AST) -> object:
    result: dict[object, object] = {}
    found = cast("ast.Dict", node)
    for key, value in zip(found.keys, found.values, strict=True):
        if key is None:
            result.update(cast("dict[object, object]", evaluate(frame, value)))
        else:
            result[evaluate(frame, key)] = evaluate(frame, value)
    return result


def _binary(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.BinOp", node)
    x, y = evaluate(frame, found.left), evaluate(frame, found.right)
    return binary(frame.trace, type(found.op), x, y)


def _unary(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.UnaryOp", node)
    return unary(frame.trace, type(found.op), evaluate(frame, found.operand))


def _compare(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.Compare", node)
    left = evaluate(frame, found.left)
    result: object = True
    for op, right_node in zip(found.ops, found.comparators, strict=True):
        right = evaluate(frame, right_node)
        link = compare(frame.trace, type(op), left, right)
        if result is True:
            result = link
        elif is_run_time(result) or is_run_time(link):
            t = frame.trace
            result = arithmetic.logical(
                t, "and", arithmetic.as_tile(t, result), arithmetic.as_tile(t, link)
            )
        else:
            result = result and link
        if result is False:
            return False
        left = right
    return result


def _bool(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.BoolOp", node)
    wants = isinstance(found.op, ast.And)
    result: object = evaluate(frame, found.values[0])
    for following in found.values[1:]:
        if not is_run_time(result):
            if truth(frame.trace, result) is wants:
                result = evaluate(frame, following)
                continue
            return result
        result = _short_circuit(frame, wants, result, following)
    return result


def _short_circuit(frame: Frame, wants: bool, left: object, node: ast.expr) -> object:
    """`left and node` (or `or`) where `left` is known at run time only."""
    t = frame.trace
    condition = truth_tile(t, left)
    block = Block()
    with t.inside(block):
        right = evaluate(frame, node)
        right_tile = truth_tile(t, right) if is_run_time(right) else None
    harmless = all(op.name in HARMLESS for op in block.ops)
    if harmless or right_tile is None:
        for op in block.ops:
            t.block.append(op)
    if right_tile is None:
        return condition if truth(t, right) is wants else not wants
    if harmless:
        return arithmetic.logical(t, "and" if wants else "or", condition, right_tile)
    decided = Block()
    with t.inside(block):
        t.op("yield", (right_tile.value,))
    with t.inside(decided):
        t.op("yield", (t.constant(not wants, right_tile.dtype),))
    blocks = (block, decided) if wants else (decided, block)
    op = t.structure("if", blocks, condition.value, types=[right_tile.type])
    return Tile(op.results[0], right_tile.dtype)


def _conditional(frame: Frame, node: ast.AST) -> object:
    """`x if condition else y`."""
    found, t = cast("ast.IfExp", node), frame.trace
    condition = evaluate(frame, found.test)
    if not is_run_time(condition):
        return evaluate(frame, found.body if truth(t, condition) else found.orelse)
    test = truth_tile(t, condition)
    blocks, values = (Block(), Block()), list[object]()
    for block, branch in zip(blocks, (found.body, found.orelse), strict=True):
        with t.inside(block):
            values.append(evaluate(frame, branch))
    return meet(frame, node, test, blocks, values, "the branches give")


# Attributes, items, calls


def _attribute(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.Attribute", node)
    owner = evaluate(frame, found.value)
    return read_attribute(frame, node, owner, found.attr)


def _subscript(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.Subscript", node)
    owner, index = evaluate(frame, found.value), evaluate(frame, found.slice)
    return read_item(frame, node, owner, index)


def _slice(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.Slice", node)
    bounds = [
        None if b is None else evaluate(frame, b) for b in (found.lower, found.upper, found.step)
    ]
    numbers = [b if b is None else static_number(b) for b in bounds]
    if any(b is not None and n is None for b, n in zip(bounds, numbers, strict=True)):
        is_pipe = frame.trace.kernel.level == "pipe"
        raise frame.error(
            node,
            "subscript",
            "the bounds of a slice must be known when compiling",
            "a region is named by its first element: A[row, column]" if is_pipe else "",
        )
    return slice(*numbers)


def _call(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.Call", node)
    function = evaluate(frame, found.func)
    if isinstance(function, Keyword):
        return _keyword(frame, found, function)
    arguments: list[object] = []
    for argument in found.args:
        if isinstance(argument, ast.Starred):
            arguments.extend(iterate(frame, argument.value, evaluate(frame, argument.value)))
        else:
            arguments.append(evaluate(frame, argument))
    keywords: dict[str, object] = {}
    for keyword in found.keywords:
        value = evaluate(frame, keyword.value)
        if keyword.arg is None:
            keywords.update(cast("dict[str, object]", value))
        else:
            keywords[keyword.arg] = value
    return call(frame.trace, function, arguments, keywords)


def _keyword(frame: Frame, node: ast.Call, keyword: Keyword) -> object:
    name = keyword.__name__
    if name == "static_eval" and len(node.args) == 1 and not node.keywords:
        return evaluate_statically(frame, node.args[0])
    if name == "static_assert" and len(node.args) in (1, 2) and not node.keywords:
        condition = evaluate_statically(frame, node.args[0])
        if not isinstance(condition, bool):
            number = static_number(condition)
            if number is None:
                raise frame.error(
                    node,
                    "static_assert",
                    f"the condition must be known, found {describe(condition)}",
                )
            condition = bool(number)
        if not condition:
            text = "" if len(node.args) == 1 else evaluate_statically(frame, node.args[1])
            told = f": {text}" if text not in ("", None) else ""
            raise frame.error(node, "static_assert", f"static assertion failed{told}")
        return None
    where = "the iterable of a `for`" if name == "static_iter" else "the operand of a `raise`"
    if name in ("static_iter", "static_exception"):
        raise frame.error(node, "static", f"`{name}(...)` can only stand as {where}")
    raise frame.error(node, "arguments", f"`{name}` was given the wrong number of arguments")


# Text, functions, comprehensions


def _joined(frame: Frame, node: ast.AST) -> object:
    parts: list[str | FormattedTile] = []
    for piece in cast("ast.JoinedStr", node).values:
        if isinstance(piece, ast.Constant):
            parts.append(str(piece.value))
            continue
        found = cast("ast.FormattedValue", piece)
        value = evaluate(frame, found.value)
        spec = "" if found.format_spec is None else str(evaluate(frame, found.format_spec))
        parts.extend(format_value(frame, node, value, spec, found.conversion))
    if all(isinstance(part, str) for part in parts):
        return "".join(cast("list[str]", parts))
    return FormattedText(tuple(parts))


def make_function(frame: Frame, node: ast.FunctionDef | ast.Lambda) -> LocalFunction:
    """A function written inside the kernel."""
    names = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    source = FunctionSource(names, node, frame.source.source, frame.source.line_offsets)
    positional = [*node.args.posonlyargs, *node.args.args]
    tail = positional[len(positional) - len(node.args.defaults) :]
    defaults = {a.arg: evaluate(frame, d) for a, d in zip(tail, node.args.defaults, strict=True)}
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = evaluate(frame, default)
    return LocalFunction(source, lambda: frame.names, defaults, frame.lookup, frame.local_names)


def _lambda(frame: Frame, node: ast.AST) -> object:
    return make_function(frame, cast("ast.Lambda", node))


def _comprehension(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.ListComp", node)
    results: list[object] = []
    inner = replace(frame, names=dict(frame.names))
    own = assigned_names([ast.Expr(g.target) for g in found.generators])
    inner.local_names |= frozenset(own)

    def run(generators: list[ast.comprehension], around: Frame) -> None:
        if not generators:
            results.append(evaluate(inner, found.elt))
            return
        first, *rest = generators
        items = iterate(around, first.iter, _iterable(around, first.iter))
        if around is frame:  # the first iterable is outside the scope of the comprehension
            for name in own:
                inner.names.pop(name, None)
        for item in items:
            assign_target(inner, first.target, item)
            conditions = [evaluate(inner, c) for c in first.ifs]
            run_time = next((c for c in conditions if is_run_time(c)), None)
            if run_time is not None:
                raise frame.error(
                    node, "comprehension", "a condition here must be known when compiling"
                )
            if all(truth(frame.trace, c) for c in conditions):
                run(rest, inner)

    run(found.generators, frame)
    return results


def _iterable(frame: Frame, node: ast.expr) -> object:
    """An iterable, which may be wrapped in `static_iter`."""
    if isinstance(node, ast.Call):
        function = evaluate(frame, node.func)
        if isinstance(function, Keyword) and function.__name__ == "static_iter" and node.args:
            return evaluate_statically(frame, node.args[0])
    return evaluate(frame, node)


def static_iterable(frame: Frame, node: ast.expr) -> list[object] | None:
    """The items of a `static_iter(...)`, or None if `node` is something else."""
    if not isinstance(node, ast.Call):
        return None
    function = (
        evaluate(frame, node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else None
    )
    if not isinstance(function, Keyword) or function.__name__ != "static_iter":
        return None
    if len(node.args) != 1 or node.keywords:
        raise frame.error(node, "arguments", "`static_iter` takes one iterable")
    return iterate(frame, node, evaluate_statically(frame, node.args[0]))


def _named(frame: Frame, node: ast.AST) -> object:
    found = cast("ast.NamedExpr", node)
    value = evaluate(frame, found.value)
    frame.names[found.target.id] = value
    return value


def _name_result(name: str, value: object) -> None:
    """Call the result of an operation what the kernel calls it first, for messages."""
    if isinstance(value, Foreign):
        result = value.result
    else:
        result = value.value if isinstance(value, Tile | Token) else None
    if result is None or result.name or not name.isascii():
        return
    owner = result.owner
    # A constant is shared by all who use the number.
    if isinstance(owner, Op) and owner.name != "constant":
        result.name = name


def assign_target(frame: Frame, target: ast.expr, value: object) -> None:
    """Give a value to a name, or the items of a tuple to several."""
    match target:
        case ast.Name(id=name):
            frame.names[name] = value
            _name_result(name, value)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            items = iterate(frame, target, value)
            starred = next((i for i, x in enumerate(targets) if isinstance(x, ast.Starred)), None)
            if starred is not None:
                end = len(items) - (len(targets) - starred - 1)
                if end >= starred:
                    items = [*items[:starred], items[starred:end], *items[end:]]
            if len(items) != len(targets):
                raise frame.error(
                    target, "unpack", f"{len(items)} values cannot be given to {len(targets)} names"
                )
            for inner, item in zip(targets, items, strict=True):
                assign_target(frame, inner, item)
        case ast.Starred(value=inner):
            assign_target(frame, inner, value)
        case ast.Subscript(value=owner_node, slice=index_node) if isinstance(
            owner := evaluate(frame, owner_node), ForeignValue
        ):
            owner.set_item(frame.trace, evaluate(frame, index_node), value)
        case ast.Attribute() | ast.Subscript():
            raise frame.unsupported(
                target,
                "assignment to an attribute or an item",
                "values are immutable; use ct.store, ct.scatter or ct.insert",
            )
        case _:
            raise frame.unsupported(target, f"assignment to `{type(target).__name__}`")


_HANDLERS: dict[type[ast.AST], Evaluator] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.Dict: _dict,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.IfExp: _conditional,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.JoinedStr: _joined,
    ast.Lambda: _lambda,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.NamedExpr: _named,
}
