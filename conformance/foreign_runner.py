"""An example of a runner in another project: it reads exported cases and needs NumPy only.

    python foreign_runner.py FOLDER MODULE:FUNCTION

FUNCTION(program_text, kernel, grid, arguments) runs a program. Arguments are in order: uint8 arrays
(memory, to be changed in place), or numbers. It raises LookupError for what it does not support,
and Refused(rules) where it finds that a program breaks a rule. It returns what the program printed,
or None if it cannot tell. A port to another language translates this file.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[str, str, list[int], list[Any]], str | None]


class Refused(Exception):
    """The implementation found that the program breaks these rules."""

    def __init__(self, *rules: str) -> None:
        super().__init__(", ".join(rules))
        self.rules = rules


def unpack(data: np.ndarray, width: int, count: int) -> np.ndarray:
    """Memory as codes."""
    if width == 4:
        data = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)
        return data[:count].astype(np.uint64)
    codes = data.view(f"<u{max(width, 8) // 8}")[:count].astype(np.uint64)
    return (codes != 0).astype(np.uint64) if width == 1 else codes


def sign_and_magnitude(codes: np.ndarray, format: dict[str, Any], width: int) -> Any:
    """(sign, magnitude code) of floats."""
    codes = codes >> np.uint64(format["unused_low_bits"])
    if not format["signed"]:
        return np.zeros(codes.shape, bool), codes
    bit = np.uint64(width - format["unused_low_bits"] - 1)
    return codes >> bit != 0, codes & ((np.uint64(1) << bit) - np.uint64(1))


def is_nan(codes: np.ndarray, format: dict[str, Any], width: int) -> np.ndarray:
    """Which floats are NaN."""
    if format["nan"] == "none":
        return np.zeros(codes.shape, bool)
    if format["nan"] == "negative_zero":
        return codes == np.uint64(1 << (width - 1))
    magnitude = sign_and_magnitude(codes, format, width)[1]
    return magnitude > np.uint64(format["max_code"] + format["infinity"])


def order(codes: np.ndarray, format: dict[str, Any], width: int) -> np.ndarray:
    """Integers in the order of the numbers."""
    sign, magnitude = sign_and_magnitude(codes, format, width)
    signed = magnitude.astype(np.int64)
    return np.where(sign, -signed - 1, signed)


def is_accepted(
    found: np.ndarray, low: np.ndarray, high: np.ndarray, same: bool, format: Any, width: int
) -> np.ndarray:
    """Which elements are right."""
    if format is None:
        return found == low
    inside = (order(found, format, width) >= order(low, format, width)) & (
        order(found, format, width) <= order(high, format, width)
    )
    nan, wants = is_nan(found, format, width), is_nan(low, format, width)
    good = np.where(wants, nan, inside & ~nan)
    unused = np.uint64(format["unused_low_bits"])
    return good & (found >> unused == low >> unused) if same else good


def run_case(folder: Path, manifest: dict[str, Any], case: dict[str, Any], run: Run) -> str:
    """The verdict on one case."""
    arrays = np.load(folder / case["arrays"])
    text = (folder / case["program"]).read_text(encoding="utf-8")
    memory: dict[str, np.ndarray] = {}
    values: list[Any] = []
    for argument in case["arguments"]:
        if "value" in argument:
            values.append(argument["value"])
            continue
        shared = argument["same_as"]
        space = np.zeros(argument["shift_bytes"] + arrays[argument["name"]].size, np.uint8)
        space[argument["shift_bytes"] :] = arrays[argument["name"]]
        memory[argument["name"]] = memory[shared] if shared else space[argument["shift_bytes"] :]
        values.append(memory[argument["name"]])
    try:
        printed = run(text, case["kernel"], case["grid"], values)
    except Refused as refused:
        return "pass" if set(refused.rules) & set(case["rules"]) else "fail"
    except LookupError:
        return "unsupported"
    if case["rules"]:
        return "fail"
    dtypes = {a["name"]: a["dtype"] for a in case["arguments"]}
    for name in case["answers"]:
        dtype = dtypes[name]
        width, format = manifest["widths"][dtype], manifest["formats"].get(dtype)
        low, high = arrays[f"{name}.low"], arrays[f"{name}.high"]
        found = unpack(memory[name], width, low.size)
        good = is_accepted(found, low, high, bool(arrays[f"{name}.same_bits"]), format, width)
        if not (good | arrays[f"{name}.free"]).all():
            return "fail"
    if case["prints"] is not None and printed is None:
        return "unsupported"
    return "pass" if case["prints"] in (None, printed) else "fail"


def main(folder: Path, function: str) -> int:
    """Run all cases; print what came of them."""
    module, _, name = function.partition(":")
    run: Run = getattr(importlib.import_module(module), name)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    counts: Counter[str] = Counter()
    for case in manifest["cases"]:
        verdict = run_case(folder, manifest, case, run)
        counts[verdict] += 1
        if verdict == "fail":
            print("fail", case["id"])
    print(dict(counts))
    return int(counts["fail"] > 0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
