"""Make what disagrees smaller: the kernel of a case, its input, a litmus test.

A smaller program still disagrees if the compiler refuses it for the same reason, if running it
breaks in the same way, or if an element that it stores is wrong: where the interpreter stores what
it did for the whole program, by the case's own answer, tolerances included; elsewhere only if
nothing in the program may be inexact, and then to the bit.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from reftile.conformance.backend import (
    Diagnosed,
    InterpBackend,
    Stopped,
    Unsupported,
    valid_module,
)
from reftile.conformance.cases import Argument, Buffer, Bytes, Case, Program, from_memory
from reftile.conformance.fuzz.reduce import reduce_kernel
from reftile.conformance.oracle.formats import FORMATS, is_float, is_nan
from reftile.conformance.runner import Result, element_text
from reftile.conformance.stress import StressConfig
from reftile.conformance.tileiras.backend import Executable, TileirasBackend
from reftile.conformance.tileiras.compiler import module_to_bytecode
from reftile.conformance.verdicts import Verdict

from reftile.interp.model.explore import explore
from reftile.interp.model.litmus import LitmusTest
from reftile.interp.model.values import registers
from reftile.ir.core import Kernel, Module
from reftile.ir.ops import OPS
from reftile.ir.print import show

INEXACT = frozenset(
    n for n, c in OPS.items() if c.definition.accuracy not in ("", "exact", "rounded")
)
"""Operations with results that an implementation may choose among."""
SHORT_LAUNCH = 3.0
"""Seconds after which a reduced program counts as one that never ends; they take milliseconds."""
REFUSED, STOPPED, WRONG = "refused", "stopped", "wrong"
TRIED = 3
"""Cases of a group that are tried, should one turn out not to disagree again."""


@dataclass(frozen=True)
class Finding:
    """One way to disagree, and the smallest program found that does.

    kind: `refused`, `stopped` or `wrong`. ids: the cases that show it. operations: of the kernel,
    before and after. fault: whose it is, which a person decides: theirs, ours, the text's.
    """

    kind: str
    op: str
    dtype: str
    ids: tuple[str, ...]
    what: str
    text: str = ""
    launch: str = ""
    operations: tuple[int, int] = (0, 0)
    fault: str = ""
    note: str = ""

    @staticmethod
    def of(members: Sequence[Result], note: str = "") -> Finding:
        """The finding of some results, not reduced."""
        first, ids = members[0], tuple(r.id for r in members)
        what = first.message.partition("\nto repeat")[0][:1000]
        return Finding(kind_of(first), first.op, first.dtype, ids, what, note=note)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"cases": len(self.ids), "ids": list(self.ids[:40])}


def kind_of(result: Result) -> str:
    """How a case disagrees; empty if it does not."""
    if result.verdict is Verdict.FAIL:
        return WRONG
    if result.verdict is Verdict.ERROR:
        return STOPPED
    refused = result.verdict is Verdict.UNSUPPORTED and result.message.startswith("tileiras")
    return REFUSED if refused else ""


def group(results: Iterable[Result]) -> list[tuple[Result, ...]]:
    """Results that disagree in the same way: kind, operation, type, and what is said about it."""
    found: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        kind = kind_of(result)
        if not kind:
            continue
        said = re.sub(r"\d+", "#", result.message.partition("\n")[0]) if kind == REFUSED else ""
        found.setdefault((kind, result.op, result.dtype, said), []).append(result)
    return [tuple(members) for _, members in sorted(found.items(), key=lambda item: item[0])]


# Cases


@dataclass
class Judge:
    """Whether a kernel disagrees as a case does."""

    backend: TileirasBackend
    program: Program
    op: str
    module: Module = field(init=False)
    expected: dict[str, Bytes] = field(init=False)
    kind: str = ""

    def __post_init__(self) -> None:
        self.module = valid_module(self.program.text, self.program.kernel)
        self.expected = self._interpret(self.kernel, self.program.arguments)
        self.kind = self.look(self.kernel, self.program.arguments)[0]

    @property
    def kernel(self) -> Kernel:
        """The kernel of the case."""
        return next(k for k in self.module.kernels if k.name == self.program.kernel)

    def fails(self, kernel: Kernel, arguments: Sequence[Argument]) -> bool:
        """Whether it disagrees in the same way still, with the operation in it."""
        if not any(op.name == self.op for op in kernel.walk()) and self.op in OPS:
            return False
        return bool(self.kind) and self.look(kernel, arguments)[0] == self.kind

    def look(self, kernel: Kernel, arguments: Sequence[Argument]) -> tuple[str, str]:
        """(kind, what is wrong); the kind is empty if nothing is.

        A refusal or a break carries its reason in the kind, so that another one is another kind.
        """
        module = self._module(kernel)
        compiled = self.backend.compiled(module_to_bytecode(module))
        if compiled.refused:
            return f"{REFUSED} {compiled.refused}", compiled.refused
        expected = self._interpret(kernel, arguments)
        executable = Executable(compiled.cubin, kernel.name)
        try:
            got = self.backend.run(executable, self.program.grid, arguments)
        except Stopped as error:
            reason = str(error).partition(":")[0]
            return f"{STOPPED} {reason}", str(error)
        exact = not any(op.name in INEXACT for op in kernel.walk())
        for argument in arguments:
            if not isinstance(argument, Buffer) or argument.name not in expected:
                continue
            one, other = expected[argument.name], got[argument.name]
            bad = self._wrong(argument, one, other, exact)
            if bad.any():
                at = int(np.argmax(bad))
                first, second = (
                    from_memory(data, argument.dtype, argument.bits.size)[at]
                    for data in (one, other)
                )
                what = (
                    f"{argument.name}[{at}] is {element_text(int(second), argument.dtype)}, and "
                    f"{element_text(int(first), argument.dtype)} on the interpreter; "
                    f"{int(bad.sum())} of {bad.size} elements are wrong"
                )
                return WRONG, what
        return "", ""

    def _wrong(self, buffer: Buffer, one: Bytes, other: Bytes, exact: bool) -> np.ndarray:
        dtype, size = buffer.dtype, buffer.bits.size
        wanted, found = (from_memory(data, dtype, size) for data in (one, other))
        bad = np.zeros(size, bool)
        if exact:
            bad = wanted != found
            if is_float(dtype):
                f = FORMATS[dtype]
                bad &= ~(is_nan(wanted, f) & is_nan(found, f))
        answer = self.program.answers.get(buffer.name)
        if answer is not None:
            wrong = np.ones(size, bool)
            for accepted in (answer, *self.program.others.get(buffer.name, ())):
                wrong &= accepted.wrong(found)
            same = from_memory(self.expected[buffer.name], dtype, size) == wanted
            bad = np.where(same, wrong, bad)
        return bad

    def _module(self, kernel: Kernel) -> Module:
        return Module([kernel], self.module.globals, self.module.name)

    def _interpret(self, kernel: Kernel, arguments: Sequence[Argument]) -> dict[str, Bytes]:
        executable = self._module(kernel), kernel.name
        return InterpBackend().run(executable, self.program.grid, arguments)


def reduce_group(
    backend: TileirasBackend, members: Sequence[tuple[Result, Case]], seconds: float
) -> Finding:
    """The finding of some cases that disagree in the same way, from the shortest of them."""
    first, finding = members[0][0], Finding.of([r for r, _ in members])
    programs = [(len(p.text), r.id, p) for r, p in ((r, c.build()) for r, c in members[:60])]
    longest, backend.device.longest = backend.device.longest, SHORT_LAUNCH
    end = time.monotonic() + seconds
    try:
        for _, id, program in sorted(programs, key=lambda entry: entry[:2])[:TRIED]:
            left = end - time.monotonic()
            found = _reduce_program(backend, program, first.op, max(left, 1.0))
            if found is not None:
                ids = (id, *(i for i in finding.ids if i != id))
                return replace(finding, ids=ids, **found)
    finally:
        backend.device.longest = longest
    return replace(finding, note="it did not show again while it was reduced")


def _reduce_program(
    backend: TileirasBackend, program: Program, op: str, seconds: float
) -> dict[str, Any] | None:
    try:
        judge = Judge(backend, program, op)
    except (Unsupported, Diagnosed):
        return None
    if not judge.kind:
        return None
    kernel = reduce_kernel(judge.kernel, lambda k: judge.fails(k, program.arguments), 0.7 * seconds)
    arguments = program.arguments
    if judge.kind == WRONG:
        arguments = reduce_input(
            arguments, lambda a: _tried(lambda: judge.fails(kernel, a)), 0.3 * seconds
        )
    _, what = judge.look(kernel, arguments)
    before, after = (sum(1 for _ in k.walk()) for k in (judge.kernel, kernel))
    return {
        "what": what,
        "text": show(kernel),
        "launch": describe_launch(program.grid, arguments),
        "operations": (before, after),
    }


def _tried(test: Callable[[], bool]) -> bool:
    try:
        return test()
    except (Diagnosed, Unsupported):
        return False


def reduce_input(
    arguments: Sequence[Argument], fails: Callable[[Sequence[Argument]], bool], seconds: float
) -> tuple[Argument, ...]:
    """Make elements of the input zero for as long as it fails, in ever smaller parts."""
    end = time.monotonic() + seconds
    found = tuple(arguments)
    for number, argument in enumerate(found):
        if not isinstance(argument, Buffer) or argument.written or argument.same_as:
            continue
        part = argument.bits.size
        while part >= 1:
            for start in range(0, argument.bits.size, part):
                buffer = found[number]
                assert isinstance(buffer, Buffer)
                bits = buffer.bits.reshape(-1).copy()
                if not bits[start : start + part].any():
                    continue
                if time.monotonic() > end:
                    return found
                bits[start : start + part] = 0
                smaller = replace(buffer, bits=bits.reshape(buffer.bits.shape))
                tried = (*found[:number], smaller, *found[number + 1 :])
                if fails(tried):
                    found = tried
            part //= 2
    return found


def describe_launch(grid: tuple[int, int, int], arguments: Sequence[Argument]) -> str:
    """The grid and the arguments; of a buffer that is read, the elements that are not zero."""
    parts = [f"grid {grid}"]
    for argument in arguments:
        if not isinstance(argument, Buffer):
            parts.append(f"{argument.name}: {argument.dtype} = {argument.value}")
            continue
        text = f"{argument.name}: {argument.dtype}[{argument.bits.size}]"
        flat = argument.bits.reshape(-1)
        places = np.flatnonzero(flat)
        if not argument.written and places.size <= 8:
            values = (f"[{i}] = {element_text(int(flat[i]), argument.dtype)}" for i in places)
            text += f", zero but {', '.join(values)}" if places.size else ", zero"
        parts.append(text)
    return "; ".join(parts)


# Litmus tests


def reduce_litmus(
    backend: TileirasBackend, test: LitmusTest, config: StressConfig, seconds: float
) -> LitmusTest:
    """A test with fewer operations and less order whose forbidden outcome is seen too."""
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for smaller in smaller_tests(test):
            if time.monotonic() > end:
                return test
            if _shows_forbidden(backend, smaller, config):
                test, changed = smaller, True
                break
    return test


def _shows_forbidden(backend: TileirasBackend, test: LitmusTest, config: StressConfig) -> bool:
    result = explore(test.program)
    if result.is_racy or result.allows() is not None:
        return False
    try:
        return backend.run_litmus(test, config).hits > 0
    except Unsupported:
        return False


def smaller_tests(test: LitmusTest) -> Iterator[LitmusTest]:
    """Tests without one operation whose results nothing needs, or without one edge."""
    program = test.program
    needed = Counter(registers(program.exists)) if program.exists is not None else Counter[str]()
    for block in program.blocks:
        for op in block.ops:
            for expr in (op.guard, *(e.guard for e in op.after)):
                needed.update(registers(expr))
            for a in op.accesses:
                for expr in (a.guard, a.value, a.compare, a.otherwise):
                    needed.update(registers(expr) if expr is not None else ())
    for number, block in enumerate(program.blocks):
        for at, op in enumerate(block.ops):
            if any(a.register in needed for a in op.accesses):
                continue
            rest = [o for i, o in enumerate(block.ops) if i != at]
            ops = tuple(
                replace(o, after=tuple(e for e in o.after if e.op != op.name)) for o in rest
            )
            if ops:
                yield _with_ops(test, number, ops)
        for at, op in enumerate(block.ops):
            for edge in op.after:
                less = replace(op, after=tuple(e for e in op.after if e is not edge))
                yield _with_ops(test, number, (*block.ops[:at], less, *block.ops[at + 1 :]))


def _with_ops(test: LitmusTest, number: int, ops: tuple[Any, ...]) -> LitmusTest:
    blocks = list(test.program.blocks)
    blocks[number] = replace(blocks[number], ops=ops)
    return replace(test, program=replace(test.program, blocks=tuple(blocks)))
