"""The fuzzer's programs on a GPU, by way of `tileiras`; the interpreter is the judge.

Programs are race-free and determinate: whatever order an implementation chooses, each byte that
they write is known. Operations with results that an implementation may choose among are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from reftile.conformance.backend import Unsupported
from reftile.conformance.cases import Bytes, from_memory
from reftile.conformance.fuzz.generate import program_of_seed
from reftile.conformance.fuzz.oracles import PROGRAM, run
from reftile.conformance.fuzz.program import Program
from reftile.conformance.fuzz.races import examine
from reftile.conformance.fuzz.reduce import reduce_kernel
from reftile.conformance.fuzz.subset import Subset
from reftile.conformance.oracle.formats import FORMATS, WIDTHS, is_float, is_nan
from reftile.conformance.tileiras.backend import TileirasBackend
from reftile.conformance.tileiras.compiler import module_to_bytecode
from reftile.conformance.tileiras.device import Code, Launch, Memory, Parameter

from reftile.interop.table import codings
from reftile.interop.write import broken_limit
from reftile.ir.core import Kernel, Module, Op
from reftile.ir.diagnostics import ReftileError
from reftile.ir.ops import OPS
from reftile.ir.print import show

INEXACT = frozenset(
    n for n, c in OPS.items() if c.definition.accuracy not in ("", "exact", "rounded")
)
"""Operations with results that an implementation may choose among."""
WITHOUT = frozenset("i4 f4e2m1 f8e8m0 tf32 f8e4m3fnuz f8e5m2fnuz".split())


def _accepts(op: Op) -> bool:
    coding = codings().get(op.name)
    if coding is None or any(name in op.attributes for name in coding.foreign):
        return False
    return not broken_limit(coding, op)


SUBSET = Subset(
    powers_of_two=True,
    without=WITHOUT,
    lacks=frozenset(OPS) - frozenset(codings()) | INEXACT,
    accepts=_accepts,
)
"""What CUDA Tile IR has on every target, as far as results are determined to the bit."""


@dataclass
class Disagreement:
    """A program that an implementation runs otherwise than the interpreter."""

    seed: int
    what: str
    text: str
    launch: str


@dataclass
class Comparison:
    """What came of some programs."""

    counts: Counter[str] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)


def programs(first: int, count: int) -> Iterator[tuple[int, Program]]:
    """Yield (seed, program): those of some seeds that are determinate, free of races, and exact."""
    for seed in range(first, first + count):
        program = program_of_seed(seed, SUBSET)
        findings = examine(program.kernel, program.buffers, program.scalars, program.grid)
        if findings.is_racy or not findings.is_determinate:
            continue
        if not any(op.name in INEXACT for op in program.kernel.walk()):
            yield seed, program


def fuzz_bytecodes(first: int, count: int) -> Iterator[bytes]:
    """The bytecode of the programs of some seeds that have one."""
    for _, program in programs(first, count):
        try:
            yield module_to_bytecode(Module([program.kernel]))
        except Unsupported:
            continue


def compare(backend: TileirasBackend, first: int, count: int) -> Comparison:
    """Run the programs of some seeds on the backend and on the interpreter."""
    found = Comparison()
    for seed, program in programs(first, count):
        try:
            what = disagreement(backend, program, program.kernel)
        except Unsupported as error:
            found.counts[f"unsupported: {str(error)[:80]}"] += 1
            continue
        found.counts["differs" if what else "agrees"] += 1
        if what:
            sizes = ", ".join(f"{b.name}: {b.dtype.name}[{b.size}]" for b in program.buffers)
            launch = f"grid {program.grid}, arguments {sizes}, {program.scalars}"
            found.disagreements.append(Disagreement(seed, what, show(program.kernel), launch))
    return found


def disagreement(backend: TileirasBackend, program: Program, kernel: Kernel) -> str:
    """How the backend's results differ from the interpreter's; empty if they do not.

    Raises:
        Unsupported: the kernel has no form in Tile IR, or is not compiled.
    """
    compiled = backend.compiled(module_to_bytecode(Module([kernel])))
    if compiled.refused:
        raise Unsupported(compiled.refused)
    expected = run(program, kernel, *PROGRAM)
    if expected.rules:
        raise Unsupported(f"the interpreter stops it: {expected.rules[0]}")
    parameters: list[Memory | Parameter] = [Memory(c) for c in program.contents]
    parameters += [Parameter(n.to_bytes(4, "little", signed=True)) for n in program.scalars]
    code = Code(compiled.cubin, kernel.name, program.grid)
    try:
        (memories,) = backend.device.run(Launch((code,), tuple(parameters)))
    except ReftileError as error:
        return f"{error.diagnosis.rule}: {error.diagnosis.message}"
    for buffer, wanted, got in zip(program.buffers, expected.memory, memories, strict=True):
        dtype, size = buffer.dtype.name, buffer.dtype.storage.itemsize
        bad = different(dtype, np.frombuffer(wanted, np.uint8), got)
        if bad.size:
            at = int(bad[0])
            one, other = wanted[at * size : (at + 1) * size], got[at * size : (at + 1) * size]
            return (
                f"{buffer.name}[{at}] ({buffer.dtype.name}) is 0x{bytes(other)[::-1].hex()}, "
                f"and 0x{one[::-1].hex()} on the interpreter; {bad.size} elements differ in all"
            )
    return ""


def different(dtype: str, one: Bytes, other: Bytes) -> NDArray[np.intp]:
    """The elements of two buffers that differ; which NaN an operation gives is not specified."""
    if WIDTHS[dtype] == 4:
        return np.flatnonzero(one != other)
    count = one.size * 8 // max(WIDTHS[dtype], 8)
    left, right = from_memory(one, dtype, count), from_memory(other, dtype, count)
    differs = left != right
    if is_float(dtype):
        f = FORMATS[dtype]
        differs &= ~(is_nan(left, f) & is_nan(right, f))
    return np.flatnonzero(differs)


def reduce(backend: TileirasBackend, found: Disagreement, seconds: float) -> Disagreement:
    """The smallest program found, within some time, that disagrees and is still determinate."""
    program = program_of_seed(found.seed, SUBSET)

    def differs(kernel: Kernel) -> bool:
        try:
            if not disagreement(backend, program, kernel):
                return False
        except Unsupported:
            return False
        findings = examine(kernel, program.buffers, program.scalars, program.grid)
        return findings.is_determinate and not findings.is_racy

    kernel = reduce_kernel(program.kernel, differs, seconds)
    what = disagreement(backend, program, kernel)
    return Disagreement(found.seed, what, show(kernel), found.launch)
