"""From a Python function and a signature to a kernel of the tile IR."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType

from reftile.ir.build import make_kernel
from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Diagnosis, ReftileError
from reftile.ir.verify import verify
from reftile.lang.calls import call
from reftile.lang.captures import Captures
from reftile.lang.frame import Flow, Frame
from reftile.lang.functions import inline, lookup_in
from reftile.lang.signature import Signature, bind_arguments
from reftile.lang.simplify import simplify
from reftile.lang.source import function_source, local_names
from reftile.lang.statements import execute
from reftile.lang.tokens import infer_access, insert_tokens
from reftile.lang.trace import Options, Trace


def trace_kernel(
    function: FunctionType,
    signature: Signature,
    options: Options,
    attributes: Mapping[str, object] | None = None,
) -> tuple[Kernel, Captures]:
    """Trace a kernel for one signature; give it with what it captured from outside.

    Raises:
        ReftileError: the kernel is wrong for these arguments; the diagnosis names the place and,
            for functions that were inlined, the chain of calls.
    """
    source = function_source(function)
    kernel = make_kernel(function.__name__, signature.ir_arguments(), "tile", source.head())
    kernel.argument_attributes = signature.argument_attributes()
    captures = trace_body(function, kernel, options, lambda t: bind_arguments(t, signature))
    simplify(kernel)
    if options.tokens == "auto":
        insert_tokens(kernel)
    infer_access(kernel)
    verify(kernel)
    if attributes:
        kernel.attributes.update({k: v for k, v in attributes.items() if v is not None})  # type: ignore[misc]
    return kernel, captures


def trace_body(
    function: FunctionType,
    kernel: Kernel,
    options: Options,
    bind: Callable[[Trace], dict[str, object]],
) -> Captures:
    """Trace the body of a function into an empty kernel; give what it captured from outside.

    bind: the values of the function's parameters.

    Raises:
        ReftileError: as `trace_kernel`.
    """
    source = function_source(function)
    captures = Captures()
    trace = Trace(kernel, captures, options, call, inline)
    frame = Frame(
        trace,
        source,
        bind(trace),
        lookup_in(trace, function),
        is_kernel=True,
        local_names=local_names(source),
    )
    trace.frame = frame
    assert isinstance(source.node, ast.FunctionDef)
    try:
        with _room_for_calls(options.deepest_call):
            outcome = execute(frame, source.node.body)
    except ReftileError as error:
        raise _in_kernel(error, function.__name__) from None
    except RecursionError:
        raise ReftileError(
            Diagnosis("lang.recursion", "the kernel is nested too deep", source.head())
        ) from None
    if outcome is Flow.NEXT:
        trace.op("return")
    return captures


FRAMES_PER_CALL = 40
"""Frames of Python's that tracing one call of the user's takes, with room to spare."""


@contextmanager
def _room_for_calls(depth: int) -> Generator[None]:
    """Allow Python to nest deep enough for calls of the user's to be `depth` deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, depth * FRAMES_PER_CALL))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _in_kernel(error: ReftileError, name: str) -> ReftileError:
    """Say which kernel inlined the function in which something is wrong."""
    found = error.diagnosis
    if found.span.called_from is None:
        return error
    note = (f"inlined into kernel `{name}`", None)
    return ReftileError(replace(found, notes=(*found.notes, note)))
