"""The example of each pass is what the pass does, and both its sides mean the same."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.ir.types import PointerType, TileType
from reftile.ir.verify import verify
from reftile.lower.drop_unused import drop_unused
from reftile.lower.pipeline import PIPE_TO_SIMT

ELEMENTS = 4096
NUMBER = 80


def without_unused(kernel: Kernel, target: str) -> Kernel:
    """`drop_unused` as a pass."""
    drop_unused(kernel)
    return kernel


PASSES: dict[str, tuple[str, Callable[[Kernel, str], Kernel]]] = {
    **{step.__name__: (step.__module__, step) for step in PIPE_TO_SIMT},
    "drop_unused": (drop_unused.__module__, without_unused),
}


def sides(module: str) -> tuple[Kernel, Kernel]:
    """The kernels before and after that a pass shows."""
    text = sys.modules[module].__doc__ or ""
    found = re.search(r"^Before:\n\n(.+?)\n\nAfter:\n\n(.+?)\s*\Z", text, re.S | re.M)
    assert found, f"{module} shows no kernel before and after"
    before, after = (parse(textwrap.dedent(part), module).kernel() for part in found.groups())
    return before, after


def run(kernel: Kernel) -> list[Any]:
    """What a kernel leaves in arrays of ones."""
    arguments: list[Any] = []
    for value in kernel.arguments:
        assert isinstance(value.type, TileType)
        element = value.type.element
        is_pointer = isinstance(element, PointerType)
        pointee = element.pointee if isinstance(element, PointerType) else element
        arguments.append(np.ones(ELEMENTS, pointee.carrier) if is_pointer else NUMBER)
    interpret(kernel, 1, arguments)
    return [a for a in arguments if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("name", PASSES)
def test_the_example_is_what_the_pass_does(name: str) -> None:
    module, step = PASSES[name]
    before, after = sides(module)
    verify(before)
    verify(after)
    assert show(step(before, str(before.attributes["target"]))) == show(after)


@pytest.mark.parametrize("name", PASSES)
def test_both_sides_of_the_example_mean_the_same(name: str) -> None:
    before, after = sides(PASSES[name][0])
    first, second = run(before), run(after)
    assert any((a != 1).any() for a in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_two_sides_differ() -> None:
    for module, _ in PASSES.values():
        before, after = sides(module)
        assert show(before) != show(after)
