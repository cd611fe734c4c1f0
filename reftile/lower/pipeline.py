"""The one list of passes, and `lower`: a `pipe` kernel to PTX and the host's plan."""

from __future__ import annotations

from dataclasses import dataclass

from reftile.ir.core import Kernel
from reftile.ir.diagnostics import Bug, fail
from reftile.ir.passes import Pass, PassReport, run_passes
from reftile.ir.verify import verify_unless_known
from reftile.lower.assign_layouts import assign_layouts
from reftile.lower.clone import clone_kernel
from reftile.lower.derive_barriers import derive_barriers
from reftile.lower.fold_constants import fold_constants
from reftile.lower.host import HostPlan, array_arguments, host_plan, name_arguments
from reftile.lower.lower_pipe import lower_pipe
from reftile.lower.ptx.assemble import Report, assemble
from reftile.lower.ptx.emit import emit_ptx
from reftile.lower.split_reductions import split_reductions
from reftile.lower.unroll_loops import unroll_loops

PIPE_TO_SIMT: tuple[Pass, ...] = (
    unroll_loops,
    assign_layouts,
    split_reductions,
    derive_barriers,
    lower_pipe,
    fold_constants,
)
"""From `pipe` to `simt`, in order; each docstring says what it needs and leaves."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel for a device.

    ptx: the text. host: how to launch it. passes: what each pass did, with its text if that was
    kept. code, assembly: the machine code and what ptxas says of it, if it was assembled.
    """

    ptx: str
    host: HostPlan
    passes: PassReport
    code: bytes | None = None
    assembly: Report | None = None


def lower(
    kernel: Kernel,
    target: str,
    assembled: bool = False,
    keep_text: bool = False,
    check_each: bool = True,
) -> Lowered:
    """Lower a `pipe` kernel. The kernel is changed: it ends up where the first passes leave it.

    target: what the kernel says it is for, such as "sm_90a". check_each: as for `run_passes`.

    Raises:
        ReftileErrors: the kernel breaks rules.
        ReftileError: it is for another target, or uses what is not lowered yet.
        Bug: a pass left something wrong, or ptxas objects.
    """
    _check_target(kernel, target)
    verify_unless_known(kernel)
    return _lower(kernel, target, assembled, keep_text, check_each)


def lower_copy(kernel: Kernel, target: str) -> Lowered:
    """Lower a copy of a `pipe` kernel, which is left as it is.

    What is verified is the kernel, unless that has been done, and the last pass's result; the copy
    has the same operations, types and attributes. After a fault of ours the passes run again with
    a check after each, so that the Bug names the one at fault.

    Raises: as `lower`.
    """
    _check_target(kernel, target)
    verify_unless_known(kernel)
    try:
        return _lower(clone_kernel(kernel), target, check_each=False)
    except Bug:
        _lower(clone_kernel(kernel), target)
        raise


def _check_target(kernel: Kernel, target: str) -> None:
    if kernel.level != "pipe" or kernel.attributes.get("target") != target:
        found = kernel.attributes.get("target", "no target")
        message = f"a pipe kernel for {target} is needed, found {kernel.level} for {found}"
        raise fail("lower.target", message, kernel.span)
    if not target.startswith("sm_"):
        message = f"`{kernel.name}` is for {target}, and kernels are lowered for NVIDIA's targets"
        raise fail("lower.target", message, kernel.span, "run it on the interpreter")


def _lower(
    kernel: Kernel,
    target: str,
    assembled: bool = False,
    keep_text: bool = False,
    check_each: bool = True,
) -> Lowered:
    """Run the passes over a verified kernel."""
    name_arguments(kernel)
    arguments, arrays = tuple(a.name for a in kernel.arguments), array_arguments(kernel)
    report = run_passes(kernel, PIPE_TO_SIMT, target, keep_text, check_each)
    ptx = emit_ptx(report.kernel)
    host = host_plan(report.kernel, arguments, arrays)
    if not assembled:
        return Lowered(ptx, host, report)
    code, assembly = assemble(ptx, target)
    return Lowered(assembly.ptx, host, report, code, assembly)
