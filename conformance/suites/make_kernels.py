"""Write the cases of the suite `kernels` from examples/ into kernels/.

    python conformance/suites/make_kernels.py            all
    python conformance/suites/make_kernels.py softmax    those of some examples

Needs a checkout, as examples are not installed; what it writes is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from reftile.conformance.oracle.formats import (
    FORMATS,
    WIDTHS,
    Codes,
    codes,
    is_float,
    join,
    key,
    round_to,
    take_apart,
)

from reftile.interp.launch import Uninitialized
from reftile.ir.print import show
from reftile.ir.types import PointerType

FOLDER = Path(__file__).parent / "kernels"
EXAMPLES = Path(__file__).parents[2] / "examples"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Files:
    """What is written for a case."""

    text: str
    description: dict[str, Any]
    arrays: Arrays


def all_files(names: Sequence[str] = ()) -> Iterator[tuple[str, Files]]:
    """The name and the files of every small case of the examples called `names`, or of all."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    for name in import_module("harness").families():
        if names and name not in names:
            continue
        for case in import_module(name).cases():
            if not case.large:
                yield case.name, files_of(case, name)


def files_of(case: Any, example: str) -> Files:
    """The files of a case. The interpreter's arguments say what each of the kernel's is."""
    kernel, values = import_module("harness").specialise(case)
    arrays: Arrays = {}
    described: list[dict[str, Any]] = []
    for value, attributes, given in zip(
        kernel.arguments, kernel.argument_attributes, values, strict=True
    ):
        element = value.type.element
        if not isinstance(element, PointerType):
            number = float(np.float32(given)) if element.name == "f32" else int(given)
            described.append({"name": value.name, "dtype": element.name, "value": number})
            continue
        dtype, fresh = element.pointee.name, isinstance(given, Uninitialized)
        array = given.array if fresh else given
        described.append(
            {
                "name": value.name,
                "dtype": dtype,
                "count": int(array.size),
                "written": attributes.get("access") != "read_only",
                "fresh": fresh,
            }
        )
        if not fresh:
            arrays[value.name] = _narrow(array.view(f"u{array.dtype.itemsize}"), dtype)
        if value.name in case.expected:
            arrays.update(answer_arrays(value.name, case.expected[value.name], dtype))
    written = next(iter(case.expected))
    description = {
        "example": example,
        "kernel": kernel.name,
        "dtype": next(d["dtype"] for d in described if d["name"] == written),
        "grid": [*case.grid, 1, 1][:3],
        "arguments": described,
        "operations": sorted({op.name for op in kernel.walk()}),
    }
    return Files(show(kernel), description, arrays)


def answer_arrays(name: str, expected: Any, dtype: str) -> Arrays:
    """The accepted codes of an output from exact values and bounds on their error."""
    value, error = expected.value.reshape(-1), expected.error.reshape(-1)
    exact = error == 0
    # One step outwards, for the rounding of the sum here.
    low = np.where(exact, value, np.nextafter(value - error, -np.inf))
    high = np.where(exact, value, np.nextafter(value + error, np.inf))
    if not is_float(dtype):
        first, last = np.ceil(low).astype(np.int64), np.floor(high).astype(np.int64)
        mask = np.uint64((1 << WIDTHS[dtype]) - 1)
        found = {f"{name}.low": _narrow(first.astype(np.uint64) & mask, dtype)}
        # Where two numbers are within the bound, either is right, which codes of integers cannot
        # say.
        return found | ({f"{name}.free": first != last} if (first != last).any() else {})
    least, greatest = _codes(low, dtype, upwards=True), _codes(high, dtype, upwards=False)
    f = FORMATS[dtype]
    if (key(least, f) > key(greatest, f)).any():
        raise ValueError(f"`{name}`: a bound is so narrow that no number of {dtype} lies within it")
    found = {f"{name}.low": _narrow(least, dtype)}
    if (least != greatest).any():
        found[f"{name}.high"] = _narrow(greatest, dtype)
    return found


def _codes(values: np.ndarray, dtype: str, upwards: bool) -> Codes:
    """Values rounded up or down to `dtype`; zeros become the lesser or the greater of the two."""
    f, wide = FORMATS[dtype], FORMATS["f64"]
    bits = codes(np.ascontiguousarray(values, np.float64).view(np.uint64))
    sign, m, e = take_apart(bits, wide)
    mode = "positive_inf" if upwards else "negative_inf"
    rounded = round_to(sign, m, e, np.zeros(sign.shape, bool), f, mode)
    infinite = np.isinf(values)
    beyond = join(sign, np.full(sign.shape, f.max_code + 1, np.uint64), f)
    rounded = np.where(infinite, beyond, rounded)
    zero = join(np.full(sign.shape, upwards), np.zeros_like(rounded), f)
    is_zero = (key(rounded, f) == 0) | (key(rounded, f) == -1)
    return np.where(is_zero, zero, rounded)


def _narrow(array: np.ndarray, dtype: str) -> np.ndarray:
    return array.reshape(-1).astype(f"u{max(WIDTHS[dtype], 8) // 8}")


def description_text(description: Mapping[str, Any]) -> str:
    """JSON with a line for each argument."""
    lines = [f"  {json.dumps(a)}" for a in description["arguments"]]
    rest = {k: v for k, v in description.items() if k != "arguments"}
    head = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in rest.items())
    return "{\n" + head + ',\n "arguments": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def write(names: Sequence[str] = ()) -> int:
    """Write the files, and remove those of cases that are gone if all are written."""
    FOLDER.mkdir(exist_ok=True)
    wanted: set[str] = set()
    for name, files in all_files(names):
        wanted.add(name)
        (FOLDER / f"{name}.tile").write_text(files.text)
        (FOLDER / f"{name}.json").write_text(description_text(files.description))
        np.savez_compressed(FOLDER / f"{name}.npz", **files.arrays)  # type: ignore[arg-type]
    if not names:
        for path in FOLDER.iterdir():
            if path.stem not in wanted:
                path.unlink()
    return len(wanted)


if __name__ == "__main__":
    print(f"{write(sys.argv[1:])} cases written to {FOLDER}")
