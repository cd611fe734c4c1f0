"""Functions of the user's: the kernel itself, and helpers traced in place of their calls."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType

from reftile.ir.diagnostics import Diagnosis, ReftileError, Span
from reftile.lang.expressions import evaluate
from reftile.lang.frame import UNKNOWN, Frame, Returned
from reftile.lang.source import FunctionSource, function_source, local_names
from reftile.lang.statements import execute
from reftile.lang.trace import Trace
from reftile.lang.values import CELL, LocalFunction, describe


def lookup_in(t: Trace, function: FunctionType) -> Callable[[str], object]:
    """How names from outside `function` are read: closure cells, globals, built-ins.

    Everything that is read is remembered as captured.
    """
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    captures = t.captures

    def read(name: str) -> object:
        if name in cells:
            try:
                return captures.cell(cells[name], name)
            except ValueError:
                return UNKNOWN
        if name in function.__globals__:
            return captures.entry(function.__globals__, name)
        return getattr(builtins, name, UNKNOWN)

    return read


def inline(
    t: Trace, function: object, arguments: Sequence[object], keywords: Mapping[str, object]
) -> object:
    """Trace a function's body in place of a call, and give what it returns."""
    if t.depth >= t.options.deepest_call:
        raise t.error(
            "recursion",
            f"calls are nested more than {t.options.deepest_call} deep",
            "recursion must end by conditions known when the kernel is compiled",
        )
    if isinstance(function, LocalFunction):
        source = function.source
        names = dict(function.captured())
        names.setdefault(source.name, function)
        lookup, defaults = function.lookup, dict(function.defaults)
        outer = function.local_names | frozenset(names)
        locals_ = local_names(source) | (outer - frozenset(names))
    else:
        assert isinstance(function, FunctionType)
        with _called(t):
            source = function_source(_undecorated(function))
        plain = _undecorated(function)
        names, lookup = {}, lookup_in(t, plain)
        defaults = {
            n: p.default
            for n, p in inspect.signature(plain).parameters.items()
            if p.default is not inspect.Parameter.empty
        }
        locals_ = local_names(source)
    for name in local_names(source):
        names.pop(name, None)
    names.update(bind(t, source, arguments, keywords, defaults))
    outer_frame = t.frame
    if outer_frame is not None and t.cells:
        names.update({n: v for n, v in outer_frame.names.items() if n.startswith(CELL)})
    frame = Frame(t, source, names, lookup, t.span, local_names=locals_)
    t.depth += 1
    t.frame = frame
    try:
        return run(frame)
    finally:
        t.depth -= 1
        t.frame = outer_frame
        if outer_frame is not None and t.cells:
            outer_frame.names.update({n: v for n, v in frame.names.items() if n.startswith(CELL)})


def _undecorated(function: FunctionType) -> FunctionType:
    """The function behind `functools.wraps`-style decorators that reftile marks as transparent."""
    inner = getattr(function, "__reftile_function__", None)
    return inner if isinstance(inner, FunctionType) else function


def run(frame: Frame) -> object:
    """Trace the body of a frame, and give what it returns."""
    node = frame.source.node
    if isinstance(node, ast.Lambda):
        return evaluate(frame, node.body)
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node)):
        raise frame.unsupported(node, "a generator")
    outcome = execute(frame, node.body)
    return outcome.value if isinstance(outcome, Returned) else None


def bind(
    t: Trace,
    source: FunctionSource,
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    defaults: Mapping[str, object],
) -> dict[str, object]:
    """The parameters of a function with the values of a call."""
    signature = _signature(source.node.args, defaults)
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        given = ", ".join(map(describe, arguments))
        raise t.error(
            "arguments",
            f"`{source.name}`: {error}",
            f"it takes {signature}, and was given ({given})",
        ) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _signature(arguments: ast.arguments, defaults: Mapping[str, object]) -> inspect.Signature:
    kinds = inspect.Parameter
    parameters: list[inspect.Parameter] = []

    def add(name: str, kind: object) -> None:
        default = defaults.get(name, kinds.empty)
        parameters.append(inspect.Parameter(name, kind, default=default))  # type: ignore[arg-type]

    for argument in arguments.posonlyargs:
        add(argument.arg, kinds.POSITIONAL_ONLY)
    for argument in arguments.args:
        add(argument.arg, kinds.POSITIONAL_OR_KEYWORD)
    if arguments.vararg is not None:
        add(arguments.vararg.arg, kinds.VAR_POSITIONAL)
    for argument in arguments.kwonlyargs:
        add(argument.arg, kinds.KEYWORD_ONLY)
    if arguments.kwarg is not None:
        add(arguments.kwarg.arg, kinds.VAR_KEYWORD)
    return inspect.Signature(parameters)


class _called:
    """Errors about a called function stand at the call."""

    def __init__(self, t: Trace) -> None:
        self.span: Span = t.span

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ReftileError) and not error.diagnosis.span.source.text:
            found = error.diagnosis
            raise ReftileError(
                Diagnosis(found.rule, found.message, self.span, found.hint)
            ) from None
