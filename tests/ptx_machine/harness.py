"""Small kernels for tests: text around a body, lane-wise evaluation, a check with ptxas."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from .machine import Report, run

Size = int | tuple[int, ...]
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""
REGISTERS = (
    ".reg .pred p<16>; .reg .b16 h<32>; .reg .b32 r<96>; .reg .b64 d<64>; "
    ".reg .f32 f<160>; .reg .f64 g<32>;"
)
REGISTER_TYPE = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def kernel(parameters: str, body: str, directives: str = "") -> str:
    """Return a module with one entry `k`; parameters like "u64 x, u32 n"."""
    declared = ", ".join(f".param .{p.strip()}" for p in parameters.split(",") if p.strip())
    return f"{HEAD}.visible .entry k({declared}) {directives}\n{{\n{REGISTERS}\n{body}\nret;\n}}\n"


@cache
def assembler_complaint(ptx: str) -> str | None:
    """Return what ptxas says against a module; None when it assembles or ptxas is absent."""
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "k.ptx"
        source.write_text(ptx)
        command = [ptxas, "-arch=sm_90a", "-O0", str(source), "-o", str(Path(folder) / "k.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr + done.stdout if done.returncode else None


def execute(ptx: str, grid: Size = 1, block: Size = 32, args=(), **options) -> Report:
    """Run entry `k`; the text must assemble."""
    complaint = assembler_complaint(ptx)
    assert complaint is None, complaint
    return run(ptx, "k", grid, block, args=args, **options)


def compute(body: str, inputs: dict[str, np.ndarray], outputs: dict[str, type]) -> dict:
    """Run straight-line code on 32 lanes and return its outputs.

    inputs: arrays of 32 elements; each becomes a register of its name. outputs: registers that the
    body writes, by NumPy type; bool means a predicate.
    """
    lines, declared, args = ["mov.u32 r0, %tid.x;"], [], []
    for name, array in inputs.items():
        width = array.dtype.itemsize
        declared.append(f".reg .{register_type(array.dtype)} {name};")
        lines.append(f"ld.param.u64 d0, [p_{name}]; mad.wide.u32 d0, r0, {width}, d0;")
        lines.append(f"ld.global.{register_type(array.dtype)} {name}, [d0];")
        args.append(array)
    results = {}
    lines.append(body)
    for name, kind in outputs.items():
        is_predicate = kind is bool
        results[name] = np.zeros(32, np.uint32 if is_predicate else kind)
        dtype = results[name].dtype
        declared.append(f".reg .{'pred' if is_predicate else register_type(dtype)} {name};")
        lines.append(f"ld.param.u64 d0, [p_{name}]; mad.wide.u32 d0, r0, {dtype.itemsize}, d0;")
        if is_predicate:
            lines.append(f"selp.u32 r1, 1, 0, {name}; st.global.u32 [d0], r1;")
        else:
            lines.append(f"st.global.{register_type(dtype)} [d0], {name};")
        args.append(results[name])
    parameters = ", ".join(f"u64 p_{name}" for name in (*inputs, *outputs))
    execute(kernel(parameters, "\n".join([*declared, *lines])), args=args)
    return {n: v.astype(bool) if outputs[n] is bool else v for n, v in results.items()}


def register_type(dtype: np.dtype) -> str:
    """Return the register type for arrays of a NumPy type."""
    if dtype == np.float32:
        return "f32"
    if dtype == np.float64:
        return "f64"
    return REGISTER_TYPE[dtype.itemsize]
