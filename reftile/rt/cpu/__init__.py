"""The backend `cpu`: tile kernels as machine code, their blocks on threads.

    report = launch_cpu(kernel, (1024,), [x, y, out])

`launch` leads through a launch. What it does in turn: `arguments` packs what it is given, `prepare`
has the kernel compiled, with the machine code from `code`, `threads` runs blocks, `blas` finds the
products that they call, and `printing` gathers what they print.
"""

from reftile.rt.cpu.launch import CpuReport, launch_cpu, run
from reftile.rt.cpu.threads import thread_count

__all__ = ["CpuReport", "launch_cpu", "run", "thread_count"]
