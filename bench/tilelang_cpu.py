"""TileLang's `c` target on a matrix product, run as a process of its own.

Reads lines of `size tile_m tile_n tile_k`, compiles the product of square f32 matrices in such
tiles at its first mention, checks it, and answers each line with the wall seconds of one launch.
The kernel is TileLang's own example for processors; its code runs on one thread.
"""

# pyright: reportMissingImports=false, reportInvalidTypeForm=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportMissingParameterType=false

import json
import os
import sys
import time

import tilelang
import tilelang.language as T
import torch


def product(size: int, m: int, n: int, k: int):
    """The kernel for one size."""

    @T.prim_func
    def main(
        a: T.Tensor((size, size), "float32"),
        b: T.Tensor((size, size), "float32"),
        c: T.Tensor((size, size), "float32"),
    ):
        with T.Kernel(T.ceildiv(size, n), T.ceildiv(size, m)) as (bx, by):
            a_local = T.alloc_local((m, k), "float32")
            b_local = T.alloc_local((k, n), "float32")
            c_local = T.alloc_local((m, n), "float32")
            T.clear(c_local)
            for step in T.Pipelined(size // k, num_stages=0):
                T.copy(a[by * m, step * k], a_local)
                T.copy(b[step * k, bx * n], b_local)
                for i, j, inner in T.grid(m, n, k):
                    c_local[i, j] += a_local[i, inner] * b_local[inner, j]
            T.copy(c_local, c[by * m, bx * n])

    return tilelang.compile(main, target="c", execution_backend="cython")


def main() -> None:
    """Answer lines until there are no more."""
    # TileLang logs to where answers go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    ready = {}
    for line in sys.stdin:
        if line not in ready:
            size, *tile = (int(word) for word in line.split())
            kernel = product(size, *tile)
            a, b = torch.randn(2, size, size)
            c = torch.zeros(size, size)
            kernel(a, b, c)
            if (c - a @ b).abs().max() > 1e-2:
                raise SystemExit("TileLang's product is wrong")
            ready[line] = (kernel, a, b, c)
        kernel, *arrays = ready[line]
        start = time.perf_counter()
        kernel(*arrays)
        print(json.dumps(time.perf_counter() - start), file=answers, flush=True)


if __name__ == "__main__":
    main()
