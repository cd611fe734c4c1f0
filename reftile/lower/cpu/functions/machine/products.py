# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOptionalMemberAccess=false
# pyright: reportPrivateImportUsage=false, reportArgumentType=false
# numba has no types for what it passes to intrinsics.
"""Products of matrices, by the host's BLAS."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from reftile.lower.cpu.functions.machine.instructions import BYTE, LLVM


def gemm(kind: str, beta: float) -> Any:
    """`gemm(function, ta, tb, m, n, k, a, lda, b, ldb, c, ldc)`: c = a @ b + beta c, by rows.

    function: the address of BLAS's sgemm or dgemm, which reads columns first: operands are
    exchanged. ta, tb: whether an operand is given with its columns contiguous. a, b, c: addresses.
    """
    number = LLVM[kind]

    @intrinsic
    def call(typingctx, function, ta, tb, m, n, k, a, lda, b, ldb, c, ldc):
        def generate(context, builder, signature, args):
            function, ta, tb, m, n, k, a, lda, b, ldb, c, ldc = args

            def by_reference(value: Any) -> Any:
                slot = cgutils.alloca_once(builder, value.type)
                builder.store(value, slot)
                return builder.bitcast(slot, BYTE.as_pointer())

            def size(value: Any) -> Any:
                return by_reference(builder.trunc(value, ir.IntType(32)))

            def letter(flag: Any) -> Any:
                t, n = (ir.Constant(BYTE, ord(x)) for x in "TN")
                return by_reference(builder.select(flag, t, n))

            def place(value: Any) -> Any:
                return builder.inttoptr(value, BYTE.as_pointer())

            alpha = by_reference(ir.Constant(number, 1.0))
            factor = by_reference(ir.Constant(number, beta))
            passed = [letter(tb), letter(ta), size(n), size(m), size(k), alpha]
            passed += [place(b), size(ldb), place(a), size(lda), factor, place(c), size(ldc)]
            kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer()] * len(passed))
            builder.call(builder.inttoptr(function, kind.as_pointer()), passed)
            return context.get_dummy_value()

        flags, sizes = [types.boolean] * 2, [types.int64] * 9
        return types.void(types.int64, *flags, *sizes), generate

    return call


sgemm, dgemm = gemm("f32", 1.0), gemm("f64", 1.0)
sgemm_anew, dgemm_anew = gemm("f32", 0.0), gemm("f64", 0.0)
