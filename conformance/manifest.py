"""Export cases as files, so that an implementation in any language can run them.

    folder/manifest.json      the cases: id, kernel, grid, arguments, what is expected
    folder/cases/NUMBER.tile  the program
    folder/cases/NUMBER.npz   arrays: `NAME` as it lies in memory, little-endian, before the run;
    for each buffer with an
                              answer `NAME.low` and `NAME.high`, the least and the greatest accepted
                              code of each element, `NAME.free`, true where anything goes, and
                              `NAME.same_bits`

A code is the bit pattern of an element in an unsigned number; elements of 4 bits are packed in
memory, the first in the low half, and not in the answers. `prints` is the text that the program
prints, null where that is not looked at. Codes are ordered as the numbers they
stand for, -0 before +0. A NaN in `low` asks for a NaN, of the same bits if `same_bits`.
`foreign_runner.py` beside this file is a reader in 100 lines that knows nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reftile.conformance.cases import Buffer, Case, Program, excused
from reftile.conformance.oracle.formats import FORMATS, WIDTHS
from reftile.conformance.runner import select_cases
from reftile.conformance.suites.common import Settings

VERSION = 1


def export_cases(
    folder: Path, suites: Sequence[str] = (), filter: str = "", settings: Settings | None = None
) -> dict[str, Any]:
    """Write the cases of suites into a folder, and return the manifest."""
    chosen = Settings() if settings is None else settings
    (folder / "cases").mkdir(parents=True, exist_ok=True)
    entries = [
        _export(folder, number, case)
        for number, case in enumerate(select_cases(chosen, suites, filter))
    ]
    manifest = {
        "kind": "reftile-conformance-cases",
        "version": VERSION,
        "budget": chosen.budget,
        "seed": chosen.seed,
        "widths": WIDTHS,
        "formats": {name: _describe_format(name) for name in FORMATS},
        "cases": entries,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return manifest


def _describe_format(name: str) -> dict[str, Any]:
    f = FORMATS[name]
    return {
        "exponent_bits": f.exponent_bits,
        "mantissa_bits": f.mantissa_bits,
        "bias": f.bias,
        "max_code": f.max_code,
        "infinity": f.infinity,
        "nan": f.nan,
        "signed": f.signed,
        "unused_low_bits": f.unused,
    }


def _export(folder: Path, number: int, case: Case) -> dict[str, Any]:
    program = case.build()
    stem = f"cases/{number:05d}"
    (folder / f"{stem}.tile").write_text(program.text, encoding="utf-8")
    arrays = _arrays(program)
    np.savez_compressed(folder / f"{stem}.npz", allow_pickle=False, **arrays)
    return {
        "id": case.id,
        "suite": case.suite,
        "op": case.op,
        "dtype": case.dtype,
        "covers": list(case.covers),
        "program": f"{stem}.tile",
        "arrays": f"{stem}.npz",
        "kernel": program.kernel,
        "grid": list(program.grid),
        "arguments": [_argument(a) for a in program.arguments],
        "answers": sorted(program.answers),
        "rules": list(program.rules),
        "prints": program.output,
        "checked": sum(a.size - excused(a) for a in program.answers.values()),
    }


def _argument(argument: Any) -> dict[str, Any]:
    if isinstance(argument, Buffer):
        return {
            "name": argument.name,
            "dtype": argument.dtype,
            "elements": int(argument.bits.size),
            "written": argument.written,
            "fresh": argument.fresh,
            "shift_bytes": argument.shift_bytes,
            "same_as": argument.same_as,
        }
    return {"name": argument.name, "dtype": argument.dtype, "value": argument.value}


def _arrays(program: Program) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for argument in program.arguments:
        if isinstance(argument, Buffer):
            arrays[argument.name] = argument.memory()
    for name, answer in program.answers.items():
        arrays[f"{name}.low"] = answer.low.reshape(-1)
        arrays[f"{name}.high"] = answer.high.reshape(-1)
        free = np.zeros(answer.size, bool)
        for mask in (answer.free, answer.undefined):
            if mask is not None:
                free |= mask.reshape(-1)
        arrays[f"{name}.free"] = free
        arrays[f"{name}.same_bits"] = np.array(answer.same_bits)
    return arrays
