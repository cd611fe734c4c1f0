"""Run a lowered kernel in the PTX executor: the host's plan evaluated over NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes  # pyright: ignore[reportMissingImports]
import numpy as np

from reftile.ir.core import Kernel
from reftile.ir.parse import parse
from reftile.lower.host import HostPlan, PointerParameter, ScalarParameter, TensorMapParameter
from reftile.lower.pipeline import Lowered, lower
from tests.ptx_machine import TensorMap, run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"
Argument = np.ndarray | int | float
MAP_DTYPES = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "uint8": "u8",
    "int32": "s32",
}
SWIZZLES = {0: "none", 32: "32B", 64: "64B", 128: "128B"}


def read_kernel(name: str, *changes: tuple[str, str]) -> Kernel:
    """The kernel of an example, with texts replaced; each must occur."""
    text = (EXAMPLES / f"{name}.tile").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse(text, f"{name}.tile").kernel()


def lowered(name: str, *changes: tuple[str, str]) -> Lowered:
    """An example, lowered for its target."""
    kernel = read_kernel(name, *changes)
    return lower(kernel, str(kernel.attributes["target"]))


def pack(plan: HostPlan, arguments: Mapping[str, Argument]) -> list[object]:
    """The parameters of a launch, as the executor takes them."""
    numbers = {k: v for k, v in arguments.items() if isinstance(v, int)}
    packed: list[object] = []
    for p in plan.parameters:
        match p:
            case ScalarParameter() | PointerParameter():
                packed.append(arguments[p.name])
            case TensorMapParameter():
                extents, strides = p.evaluate(numbers)
                array = arguments[p.base]
                assert isinstance(array, np.ndarray)
                packed.append(
                    TensorMap(
                        array,
                        MAP_DTYPES[p.dtype],
                        extents,
                        strides,
                        p.box,
                        SWIZZLES[p.swizzle],
                        fill=p.fill,
                    )
                )
    return packed


def launch(
    kernel: Lowered, grid: int | tuple[int, ...], seed: int = 0, **arguments: Argument
) -> None:
    """Run a lowered kernel; arrays are changed in place."""
    plan = kernel.host
    run(
        kernel.ptx,
        plan.entry,
        grid,
        plan.threads,
        args=pack(plan, arguments),
        smem_bytes=plan.shared_bytes,
        seed=seed,
    )


def to_bits(values: np.ndarray) -> np.ndarray:
    """Floats rounded to bf16, as 16-bit patterns."""
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """What 16-bit patterns of bf16 stand for, in f64."""
    return bits.view(ml_dtypes.bfloat16).astype(np.float64)
