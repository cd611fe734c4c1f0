"""Run a lowered kernel in the PTX executor: the host's plan evaluated over NumPy arrays.

With `REFTILE_DEVICE_LOG=FILE` each kernel that the executor ran without a complaint runs on GPU 0
too. The caller then judges what the GPU computed, and a line in the file says how many elements
have other bits than the executor's.
"""

from __future__ import annotations

import math
import os
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
DEVICE_LOG = os.environ.get("REFTILE_DEVICE_LOG")
"""Where to write what a GPU made of each kernel; nothing: kernels run in the executor alone."""

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


def one_tile(source: str, result: str, body: str, warps: int = 1, target: str = "sm_80") -> str:
    """A kernel that makes a tile of another: `body` computes %r, of all of O, from %a, all of X.

    source, result: their types, such as `16x32xf16`. %read is the token of the load, %zero is 0.
    """

    def access(tile: str) -> tuple[str, str, str]:
        *shape, dtype = tile.split("x")
        strides = [str(math.prod(map(int, shape[axis + 1 :]))) for axis in range(len(shape))]
        view = f"tensor_view<{tile}, strides=[{', '.join(strides)}]>"
        part = f"partition_view<tile=({'x'.join(shape)}), {view}>"
        return f"tile<ptr<{dtype}>>", view, part

    (x, x_view, x_part), (o, o_view, o_part) = access(source), access(result)
    x_at, o_at = (", ".join(["%zero"] * tile.count("x")) for tile in (source, result))
    return f"""
    pipe kernel @k(%x: {x}, %o: {o}) attributes {{target = "{target}", warps = {warps}}} {{
      %zero = constant {{value = 0}} : tile<i32>
      %xt = make_tensor_view %x, [], [] : {x_view}
      %v = make_partition_view %xt : {x_part}
      %ot = make_tensor_view %o, [], [] : {o_view}
      %w = make_partition_view %ot : {o_part}
      %a, %read = load_view_tko %v, [{x_at}] {{ordering = weak}} : tile<{source}>, token
      {body}
      %stored = store_view_tko %r, %w, [{o_at}] {{ordering = weak}} : token
      return
    }}
    """


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
    arrays = {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}
    given = {k: v.copy() for k, v in arrays.items()} if DEVICE_LOG else {}
    run(
        kernel.ptx,
        plan.entry,
        grid,
        plan.threads,
        args=pack(plan, arguments),
        smem_bytes=plan.shared_bytes,
        seed=seed,
    )
    if DEVICE_LOG:
        with open(DEVICE_LOG, "a", encoding="utf-8") as lines:
            lines.write(_launch_on_device(kernel, grid, arguments, given) + "\n")


class _OnDevice:
    """A NumPy array's bytes on GPU 0. dtype: what the kernel takes them for."""

    def __init__(self, array: np.ndarray, dtype: str) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.bytes = torch.from_numpy(flat.copy()).cuda()
        self.dtype = "f32" if dtype == "tf32" else dtype
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": {"f16": "<f2", "i1": "|b1"}.get(dtype, f"|V{array.itemsize}"),
            "data": (self.bytes.data_ptr(), False),
            "version": 3,
        }

    def read(self, like: np.ndarray) -> np.ndarray:
        """The bytes as an array of the shape and type that it was made from."""
        return self.bytes.cpu().numpy().view(like.dtype).reshape(like.shape)


def _launch_on_device(
    kernel: Lowered,
    grid: int | tuple[int, ...],
    arguments: Mapping[str, Argument],
    given: Mapping[str, np.ndarray],
) -> str:
    """Put what GPU 0 makes of the same arguments in place of the executor's; say what differs."""
    from reftile.rt import devices
    from reftile.rt.jit import load
    from reftile.rt.launcher import Launcher

    plan = kernel.host
    function = load(kernel.ptx, plan.entry, plan.shared_bytes, 0)
    dtypes = {array.name: array.dtype for array in plan.arrays}
    there = {name: _OnDevice(array, dtypes[name]) for name, array in given.items()}
    numbers = {p.name: p.dtype for p in plan.parameters if isinstance(p, ScalarParameter)}
    values = [
        there.get(name, _number(arguments[name], numbers.get(name))) for name in plan.arguments
    ]
    Launcher(plan, function, 0)(grid if isinstance(grid, tuple) else (grid,), values)
    devices.synchronize(0)
    differ = total = 0
    for name, array in given.items():
        found, expected = there[name].read(array), arguments[name]
        assert isinstance(expected, np.ndarray)
        bits = np.dtype(f"u{array.itemsize}")
        differ += int((found.view(bits) != np.ascontiguousarray(expected).view(bits)).sum())
        total += array.size
        expected[...] = found
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
    return f"{differ} of {total} elements differ: `{plan.entry}` in {test}"


def _number(value: Argument, dtype: str | None) -> Argument | float:
    """A number as the launcher takes it; the executor takes 16-bit floats by their bits."""
    if dtype == "f16" and isinstance(value, int):
        return float(np.uint16(value).view(np.float16))
    return value


def to_bits(values: np.ndarray) -> np.ndarray:
    """Floats rounded to bf16, as 16-bit patterns."""
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """What 16-bit patterns of bf16 stand for, in f64."""
    return bits.view(ml_dtypes.bfloat16).astype(np.float64)
