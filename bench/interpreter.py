"""Time the interpreter against Triton's, both in one run on one machine.

    python bench/interpreter.py [--repeats 3] [--json FILE]

Three workloads: 256^3 f32 matmul in 64x64x32 tiles, softmax of 1024x1024 by rows, addition of 1 M
    elements. For each
the batched path (no checks), the checked path (every check on) and Triton's interpreter, the best
of several runs. Without Triton and torch the ratios are left out, and the script says so.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from reftile.interp.launch import interpret
from reftile.ir.core import Module
from reftile.ir.parse import parse

HERE = Path(__file__).resolve().parent
Workload = tuple[Module, tuple[int, ...], list[object], Callable[[], bool]]


def view(name: str, base: str, shape: list[str], strides: str, tile: str, padding: str = "") -> str:
    """The lines that make a partition view `%name` of the pointer `%base`."""
    unknown = "x".join("?" for _ in shape)
    tensor = f"tensor_view<{unknown}xf32, strides={strides}>"
    stride_operands = ", ".join(shape[1:])
    extra = f", padding={padding}" if padding else ""
    return (
        f"  %{name}_t = make_tensor_view %{base}, [{', '.join(shape)}], [{stride_operands}] : {tensor}\n"
        f"  %{name} = make_partition_view %{name}_t : partition_view<tile=({tile}), {tensor}{extra}>\n"
    )


ADD = (
    "tile kernel @add(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>, %z: tile<ptr<f32>>, %n: tile<i32>) {\n"
    + view("a", "x", ["%n"], "[1]", "1024", "zero")
    + view("b", "y", ["%n"], "[1]", "1024", "zero")
    + view("c", "z", ["%n"], "[1]", "1024")
    + """\
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %p, %tp = load_view_tko %a, [%i] {ordering = weak} : tile<1024xf32>, token
  %q, %tq = load_view_tko %b, [%i] {ordering = weak} : tile<1024xf32>, token
  %s = addf %p, %q : tile<1024xf32>
  %ts = store_view_tko %s, %c, [%i] {ordering = weak} : token
  return
}
"""
)

SOFTMAX = (
    "tile kernel @softmax(%x: tile<ptr<f32>>, %z: tile<ptr<f32>>, %m: tile<i32>, %n: tile<i32>) {\n"
    + view("a", "x", ["%m", "%n"], "[?, 1]", "1x1024", "neg_inf")
    + view("c", "z", ["%m", "%n"], "[?, 1]", "1x1024")
    + """\
  %i, %j, %k = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %row, %t = load_view_tko %a, [%i, %zero] {ordering = weak} : tile<1x1024xf32>, token
  %top = reduce %row {axis = 1, identities = [-inf]} : tile<1xf32> combine(%e: tile<f32>, %acc: tile<f32>) {
    %larger = maxf %e, %acc : tile<f32>
    yield %larger
  }
  %top2 = reshape %top : tile<1x1xf32>
  %top3 = broadcast %top2 : tile<1x1024xf32>
  %centred = subf %row, %top3 : tile<1x1024xf32>
  %power = exp %centred : tile<1x1024xf32>
  %total = reduce %power {axis = 1, identities = [0.0]} : tile<1xf32> combine(%e: tile<f32>, %acc: tile<f32>) {
    %sum = addf %e, %acc : tile<f32>
    yield %sum
  }
  %total2 = reshape %total : tile<1x1xf32>
  %total3 = broadcast %total2 : tile<1x1024xf32>
  %result = divf %power, %total3 : tile<1x1024xf32>
  %ts = store_view_tko %result, %c, [%i, %zero] {ordering = weak} : token
  return
}
"""
)

MATMUL = (
    "tile kernel @matmul(%x: tile<ptr<f32>>, %y: tile<ptr<f32>>, %z: tile<ptr<f32>>, "
    "%m: tile<i32>, %n: tile<i32>, %k: tile<i32>) {\n"
    + view("a", "x", ["%m", "%k"], "[?, 1]", "64x32", "zero")
    + view("b", "y", ["%k", "%n"], "[?, 1]", "32x64", "zero")
    + view("c", "z", ["%m", "%n"], "[?, 1]", "64x64")
    + """\
  %i, %j, %l = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
  %zero = constant {value = 0} : tile<i32>
  %one = constant {value = 1} : tile<i32>
  %step = constant {value = 32} : tile<i32>
  %steps = divi %k, %step {signedness = unsigned} : tile<i32>
  %nothing = constant {value = 0.0} : tile<64x64xf32>
  %total = for %zero, %steps, %one, [%nothing] : tile<64x64xf32> body(%s: tile<i32>, %acc: tile<64x64xf32>) {
    %p, %tp = load_view_tko %a, [%i, %s] {ordering = weak} : tile<64x32xf32>, token
    %q, %tq = load_view_tko %b, [%s, %j] {ordering = weak} : tile<32x64xf32>, token
    %next = mmaf %p, %q, %acc : tile<64x64xf32>
    continue %next
  }
  %t = store_view_tko %total, %c, [%i, %j] {ordering = weak} : token
  return
}
"""
)


def workloads() -> dict[str, Workload]:
    """Name -> (module, grid, arguments, check of the result)."""
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 1 << 20), dtype=np.float32)
    z = np.empty_like(x)
    rows = random.standard_normal((1024, 1024), dtype=np.float32)
    soft = np.empty_like(rows)
    a, b = random.standard_normal((2, 256, 256), dtype=np.float32)
    c = np.empty_like(a)

    def softmax_is_right() -> bool:
        wide = np.exp(rows.astype(np.float64) - rows.max(1, keepdims=True))
        return bool(np.allclose(soft, wide / wide.sum(1, keepdims=True), rtol=1e-5, atol=1e-9))

    return {
        "matmul 256^3 f32": (
            parse(MATMUL),
            (4, 4),
            [a, b, c, 256, 256, 256],
            lambda: bool(np.allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)),
        ),
        "softmax 1024x1024": (parse(SOFTMAX), (1024,), [rows, soft, 1024, 1024], softmax_is_right),
        "add 1M": (parse(ADD), (1024,), [x, y, z, 1 << 20], lambda: bool(np.array_equal(z, x + y))),
    }


def best(workload: Workload, check: bool, repeats: int) -> float:
    """The least wall seconds of `repeats` runs after one warm-up; the result is checked."""
    module, grid, arguments, is_right = workload
    interpret(module, grid, arguments, check=check)
    if not is_right():
        raise SystemExit("the interpreter's result is wrong")
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        interpret(module, grid, arguments, check=check)
        times.append(time.perf_counter() - start)
    return min(times)


def triton_seconds(repeats: int) -> dict[str, float] | None:
    """What Triton's interpreter takes, in a process of its own, or None without Triton."""
    if find_spec("triton") is None or find_spec("torch") is None:
        return None
    command = [sys.executable, str(HERE / "triton_interpreter.py"), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    theirs = triton_seconds(options.repeats)
    if theirs is None:
        print("triton and torch are not installed: no ratios")
    for name, workload in workloads().items():
        batched = best(workload, False, options.repeats)
        checked = best(workload, True, options.repeats)
        row: dict[str, object] = {"workload": name, "batched_s": batched, "checked_s": checked}
        line = f"{name:20} batched {batched * 1e3:8.2f} ms   checked {checked * 1e3:8.2f} ms"
        if theirs is not None:
            row |= {
                "triton_s": theirs[name],
                "batched_ratio": theirs[name] / batched,
                "checked_ratio": theirs[name] / checked,
            }
            line += f"   triton {theirs[name] * 1e3:8.1f} ms: {theirs[name] / batched:6.0f}x"
            line += f" {theirs[name] / checked:6.1f}x"
        rows.append(row)
        print(line)
    if options.json:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
