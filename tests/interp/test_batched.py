"""The batched path gives what the checked path gives, bit for bit, and says when it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from tests.interp.tile_kernels import cases, program, violation

SCHEDULES: list[dict[str, Any]] = [
    {"check": False},
    {"schedule": "topo", "seed": 1},
    {"schedule": "topo", "seed": 2},
    {"schedule": "adversarial"},
    {"schedule": "adversarial", "seed": 5},
]


@pytest.mark.parametrize("name", list(cases()))
def test_every_way_to_run_gives_the_same_bits(name: str) -> None:
    text, grid, args, output = cases()[name]
    module = parse(text)
    interpret(module, grid, args)
    expected = output.tobytes()
    assert any(output)
    for options in SCHEDULES:
        output[...] = 0
        interpret(module, grid, args, **options)
        assert output.tobytes() == expected, options


def test_the_results_are_right() -> None:
    found = {}
    for name, (text, grid, args, output) in cases().items():
        interpret(parse(text), grid, args)
        found[name] = args, output
    (x, y, o), _ = found["matmul"]
    assert np.allclose(o.reshape(30, 20), x @ y, atol=1e-5)
    (x, o, _), _ = found["softmax"]
    power = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(o.reshape(5, 60), power / power.sum(1, keepdims=True), atol=1e-6)
    (x, y, o, _), _ = found["add"]
    assert (o == x + y).all()
    (numbers, bins), _ = found["histogram"]
    assert (bins == np.bincount(numbers, minlength=8)).all()
    assert found["collatz"][1][:7].tolist() == [0, 1, 7, 2, 5, 8, 16]
    assert found["triangle"][1].tolist() == [0, 0, 1, 3, 6, 10, 15, 21, 0, 0, 0, 0]


def test_blocks_that_wait_for_each_other_are_refused() -> None:
    body = """
    loop : body() {
      %v, %t = load_ptr_tko %f {ordering = acquire, scope = device} : tile<i32>, token
      %set = cmpi %v, %one {predicate = equal, signedness = signed} : tile<i1>
      if %set then {
        break
      }
      continue
    }
    """
    module = program("%f: tile<ptr<i32>>", body.replace("loop :", "loop"))
    found = violation(module, 2, [np.ones(1, np.int32)], check=False)
    assert found.rule == "batched.unsupported"
    assert "load_ptr_tko" in found.message


def test_printing_is_refused() -> None:
    module = program("", '%t = print_tko [%bx] {format = "%d"} : token')
    assert violation(module, 2, [], check=False).rule == "batched.unsupported"


def test_a_second_launch_sees_its_own_arguments() -> None:
    text = """\
tile kernel @scale(%x: tile<ptr<f32>>, %n: tile<i32>) {
  %two = constant {value = 2} : tile<i32>
  %m = muli %n, %two : tile<i32>
  %f = itof %m {signedness = signed} : tile<f32>
  %t = store_ptr_tko %x, %f {ordering = weak} : token
  return
}
"""
    kernel = parse(text).kernel()
    first, second = np.zeros(1, np.float32), np.zeros(1, np.float32)
    interpret(kernel, 1, [first, 3], check=False)
    interpret(kernel, 1, [second, 5], check=False)
    assert (first[0], second[0]) == (6.0, 10.0)
