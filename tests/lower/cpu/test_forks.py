"""Compiled kernels in processes that were forked or spawned, also while a launch or a compile runs.

Each test is a program of its own: what is forked must not be the process of pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

HERE = Path(__file__).resolve().parent

HEAD = """
import os, signal, sys, threading
sys.path.insert(0, {here!r})
import numpy as np
from test_threads import Held, of_meeting, of_product, of_rows
from reftile.rt.cpu import blas, code, launch_cpu
from reftile.rt.cpu import threads as cpu_threads

signal.alarm(200)
cpu_threads.PATIENCE_SECONDS = 150.0

def bits(case, threads=2):
    found, grid, results = case()
    launch_cpu(found.kernel, grid, found.values, threads=threads)
    return b"".join(r.tobytes() for r in results)

def in_child(act):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            act()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child

def ended_well(child):
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {{status}}"
"""

POOL = """
def work(number):
    found = [bits(case) for case in (of_product, of_rows, of_meeting)]
    return found, blas._find_thread_functions()[0]()

if __name__ == "__main__":
    import multiprocessing

    wanted = work(0)
    with multiprocessing.get_context(sys.argv[1]).Pool(3) as pool:
        assert pool.map(work, range(6), chunksize=1) == [wanted] * 6
"""

DURING_A_LAUNCH = """
get, put = blas._find_thread_functions()
put(3)
if get() == 3:
    wanted = bits(of_product)

    def act():
        assert get() == 3, "no launch runs here"
        assert bits(of_product) == wanted
        assert get() == 3

    with Held():
        assert get() == 1
        child = in_child(act)
        ended_well(child)
        assert get() == 1, "a launch runs here"
    assert get() == 3
"""

DURING_A_COMPILE = """
compiling, go_on = threading.Event(), threading.Event()
compile_kernel = code._compile

def compile_slowly(*args):
    if threading.current_thread() is not threading.main_thread():
        compiling.set()
        go_on.wait(1)
    return compile_kernel(*args)

code._compile = compile_slowly
thread = threading.Thread(target=bits, args=(of_rows,))
thread.start()
assert compiling.wait(60)
child = in_child(lambda: bits(of_product))
ended_well(child)
thread.join()
bits(of_product)
"""


def run(program: str, cache: Path, *arguments: str) -> None:
    """Run a program in a process of its own."""
    file = cache / "program.py"
    file.write_text(HEAD.format(here=str(HERE)) + program)
    done = subprocess.run(
        [sys.executable, str(file), *arguments],
        env=os.environ | {"REFTILE_CACHE": str(cache / "kept")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_launch_at_once(tmp_path: Path, method: str) -> None:
    run(POOL, tmp_path, method)


def test_a_fork_during_a_launch_leaves_blas_its_threads(tmp_path: Path) -> None:
    run(DURING_A_LAUNCH, tmp_path)


def test_a_fork_during_a_compile_can_compile(tmp_path: Path) -> None:
    run(DURING_A_COMPILE, tmp_path)
