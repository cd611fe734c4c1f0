# pyright: basic
# numba has no types for its passes.
"""The passes of numba that a generated kernel needs: a third of what it does for others.

Generated source has no closures, no lists, no arrays and no exceptions, and every variable has one
type, so nothing is rewritten and single assignment is left to LLVM.
"""

from __future__ import annotations

from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference
from numba.core.untyped_passes import FixupArgs, IRProcessing, TranslateByteCode


class KernelCompiler(CompilerBase):
    """A compiler of numba with one short pipeline."""

    def define_pipelines(self):  # noqa: ANN201
        """See numba."""
        passes = PassManager("kernel")
        passes.add_pass(TranslateByteCode, "read the bytecode")
        passes.add_pass(FixupArgs, "bind arguments")
        passes.add_pass(IRProcessing, "find lifetimes")
        passes.add_pass(NopythonTypeInference, "infer types")
        passes.add_pass(NativeLowering, "lower to LLVM")
        passes.add_pass(NoPythonBackend, "finish")
        passes.finalize()
        return [passes]
