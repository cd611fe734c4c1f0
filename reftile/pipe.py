"""The `pipe` level in Python: kernels that say who copies, who computes, what is in flight.

    from reftile import pipe

    @pipe.kernel(target="sm_90a")
    def matmul(a, b, c):
        m, k = a.shape
        n = b.shape[1]
        with pipe.Kernel(pipe.ceildiv(n, 128), pipe.ceildiv(m, 128), threads=128) as (x, y):
            a_shared = pipe.alloc_shared((128, 32), pipe.float16)
            b_shared = pipe.alloc_shared((32, 128), pipe.float16)
            total = pipe.alloc_fragment((128, 128), pipe.float32)
            pipe.clear(total)
            for step in pipe.Pipelined(pipe.ceildiv(k, 32), num_stages=2):
                pipe.copy(a[y * 128, step * 32], a_shared)
                pipe.copy(b[step * 32, x * 128], b_shared)
                pipe.gemm(a_shared, b_shared, total)
            pipe.copy(total, c[y * 128, x * 128])

    matmul(a, b, c)

The names are those of `reftile.lang.pipe.language`.
"""

from __future__ import annotations

from difflib import get_close_matches

from reftile.lang.pipe.language import *  # noqa: F403
from reftile.lang.pipe.language import __all__ as __all__


def __getattr__(name: str) -> object:
    alike = get_close_matches(name, __all__, 1)
    meant = f": is `{alike[0]}` meant?" if alike else ""
    raise AttributeError(f"pipe kernels have no name `{name}`{meant}")
