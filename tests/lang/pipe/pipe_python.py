"""Kernels of examples/pipe/*.py for tests: loaded, interpreted, run in the PTX executor."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from reftile.ir.core import Kernel
from reftile.ir.parse import parse
from reftile.ir.print import show
from reftile.lang.pipe.kernels import PipeKernel
from reftile.lower.pipeline import Lowered, lower
from tests.lower.on_machine import launch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pipe"
TARGETS = ("sm_80", "sm_90a")


@cache
def example(name: str) -> ModuleType:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(f"pipe_example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def lowered(kernel: Kernel) -> Lowered:
    """A copy of a kernel, by its text, lowered for its target."""
    copy = parse(show(kernel), f"{kernel.name}.tile").kernel()
    return lower(copy, str(kernel.attributes["target"]))


def run_on_machine(kernel: PipeKernel, *args: object, seed: int = 0) -> Lowered:
    """Lower a kernel for its arguments and run it in the PTX executor, on its own grid."""
    found = kernel.specialise(*args)
    code = lowered(found.kernel)
    values = {
        n: v.view(f"u{v.itemsize}") if isinstance(v, np.ndarray) else v
        for n, v in zip(code.host.arguments, found.values, strict=True)
    }
    launch(code, kernel.grid_of(found), seed, **values)
    return code


def product_bound(a: Any, b: Any, dtype: Any) -> tuple[Any, Any]:
    """The product in f64, and how far one may be that is summed in f32 and rounded to `dtype`.

    Each of k additions rounds once, in any order; then the result does.
    """
    wide_a, wide_b = a.astype(float), b.astype(float)
    wanted = wide_a @ wide_b
    terms = np.abs(wide_a) @ np.abs(wide_b)
    half = {np.dtype(np.float16): 2.0**-11, np.dtype(np.float32): 2.0**-24}[np.dtype(dtype)]
    smallest = {np.dtype(np.float16): 2.0**-25, np.dtype(np.float32): 0.0}[np.dtype(dtype)]
    return wanted, a.shape[1] * 2.0**-24 * terms + half * np.abs(wanted) + smallest
