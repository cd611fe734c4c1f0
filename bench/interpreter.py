"""Time the interpreter against Triton's, both in one run on one machine.

    python bench/interpreter.py [--rounds 9] [--json FILE]

Three workloads: 256^3 f32 matmul in 64x64x32 tiles, softmax of 1024x1024 by rows, addition of 1 M
elements. In every round each of the batched path (no checks), the checked path (every check on) and
Triton's interpreter, which has a process of its own, runs a workload for at least 0.1 s. Printed
are the least wall times of a launch in all rounds and their ratio, which other work on the machine
disturbs least; the ratio of the least processor times (of all threads); and the median of the
ratios of mean wall times that the rounds gave.
Without Triton and torch the ratios are left out, and the script says so.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from timing import Seconds, measure

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


def prepare(workload: Workload, check: bool) -> Callable[[], object]:
    """A function that launches a workload, after one launch whose result is checked."""
    module, grid, arguments, is_right = workload

    def run() -> object:
        return interpret(module, grid, arguments, check=check)

    run()
    if not is_right():
        raise SystemExit("the interpreter's result is wrong")
    return run


class Triton:
    """Triton's interpreter in a process of its own, which measures when it is asked to."""

    def __init__(self) -> None:
        command = [sys.executable, str(HERE / "triton_interpreter.py")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def measure(self, name: str) -> Seconds:
        """What a launch takes now."""
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None and answers is not None
        requests.write(name + "\n")
        requests.flush()
        line = answers.readline()
        if not line:
            raise SystemExit("Triton's interpreter has ended")
        return Seconds(*json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": median(values), "least": min(values), "greatest": max(values)}


def measure_all(rounds: int) -> list[dict[str, Any]]:
    """A row of figures for each workload; seconds of a launch, and ratios of Triton's to them."""
    triton = Triton() if find_spec("triton") and find_spec("torch") else None
    if triton is None:
        print("triton and torch are not installed: no ratios")
    rows: list[dict[str, Any]] = []
    for name, workload in workloads().items():
        runs = {"batched": prepare(workload, False), "checked": prepare(workload, True)}
        found: dict[str, list[Seconds]] = {"batched": [], "checked": [], "triton": []}
        for _ in range(rounds):
            if triton is not None:
                found["triton"].append(triton.measure(name))
            for path, run in runs.items():
                found[path].append(measure(run))
        rows.append(row(name, found))
        print(line(rows[-1]))
    if triton is not None:
        triton.close()
    return rows


def row(name: str, found: dict[str, list[Seconds]]) -> dict[str, Any]:
    """The figures of one workload."""
    made: dict[str, Any] = {"workload": name, "rounds": len(found["batched"])}
    for path, times in found.items():
        if times:
            made[f"{path}_s"] = summary([t.wall for t in times])
            made[f"{path}_cpu_s"] = summary([t.cpu for t in times])
            made[f"{path}_best_s"] = min(t.best_wall for t in times)
            made[f"{path}_best_cpu_s"] = min(t.best_cpu for t in times)
    for path in ("batched", "checked"):
        pairs = list(zip(found["triton"], found[path], strict=False))
        if pairs:
            made[f"{path}_ratio"] = summary([t.wall / ours.wall for t, ours in pairs])
            made[f"{path}_cpu_ratio"] = summary([t.cpu / ours.cpu for t, ours in pairs])
            for what in ("best_s", "best_cpu_s"):
                ratio = made[f"triton_{what}"] / made[f"{path}_{what}"]
                made[f"{path}_{what[:-2]}_ratio"] = ratio
    return made


def line(made: dict[str, Any]) -> str:
    """A row as text."""
    text = f"{made['workload']:18}"
    for path in ("batched", "checked"):
        text += f" {path} {made[f'{path}_best_s'] * 1e3:7.2f} ms"
        if f"{path}_ratio" in made:
            text += f" {made[f'{path}_best_ratio']:4.0f}x"
            text += f" (cpu {made[f'{path}_best_cpu_ratio']:.0f}x,"
            text += f" rounds {made[f'{path}_ratio']['median']:.0f}x)"
    if "triton_best_s" in made:
        text += f" triton {made['triton_best_s'] * 1e3:7.1f} ms"
    return text


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure_all(options.rounds)
    if options.json:
        cores, load = os.cpu_count(), os.getloadavg()[0]
        python = f"{platform.machine()}, Python {platform.python_version()}"
        machine = f"{python}, {cores} cores, load average {load:.1f}"
        options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
