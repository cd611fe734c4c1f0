"""Launches on the CPU: which backend runs, what is refused, threads, waiting, the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile.interp.launch import interpret
from reftile.ir.parse import parse
from reftile.rt.cpu import CpuReport, launch, launch_cpu, prepare, thread_count
from reftile.rt.cpu import threads as cpu_threads
from reftile.rt.cpu.code import CodeCache


@reftile.kernel
def add(a, b, c, tile: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(c, (i,), ct.load(a, (i,), (tile,)) + ct.load(b, (i,), (tile,)))


@reftile.kernel
def shift(x, tile: ct.Constant[int]):
    here = ct.load(x, (0,), (tile,))
    ct.store(x, (1,), here)


@reftile.kernel
def count(total, sums):
    ct.atomic_add(total, 0, 1)
    ct.atomic_add(sums, 0, 1.0)


@reftile.kernel(progress="cooperative")
def take_turns(lock, out):
    while ct.atomic_cas(lock, 0, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) == 1:
        pass
    ct.store(out, (0,), ct.load(out, (0,), (1,)) + 1)
    ct.atomic_xchg(lock, 0, 0, memory_order=ct.MemoryOrder.RELEASE)


@reftile.kernel(progress="cooperative")
def wait_for_ever(flag):
    while ct.atomic_cas(flag, 0, 7, 7) != 7:
        pass


def arrays(size: int = 1000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    a, b = rng.standard_normal((2, size), dtype=np.float32)
    return a, b, np.zeros(size, np.float32)


def test_unchecked_launches_of_numpy_arrays_run_compiled() -> None:
    a, b, c = arrays()
    report = reftile.launch(add, (8,), (a, b, c, 128), check=False)
    assert isinstance(report, CpuReport) and report.backend == "cpu" and report.blocks == 8
    assert np.array_equal(c, a + b)
    assert backend_of(add[(8,)](a, b, c, 128, check=False)) == "cpu"


def backend_of(report: object) -> object:
    """What ran, as the report says."""
    return getattr(report, "backend")  # noqa: B009


def test_checked_launches_go_to_the_interpreter() -> None:
    a, b, c = arrays()
    report = reftile.launch(add, (8,), (a, b, c, 128))
    assert report.checked and backend_of(report) == "interp"  # type: ignore[attr-defined]
    assert backend_of(reftile.launch(add, (8,), (a, b, c, 128), check=True)) == "interp"
    with pytest.raises(reftile.ReftileError, match="compiled kernels are not") as caught:
        reftile.launch(add, (8,), (a, b, c, 128), backend="cpu")
    assert caught.value.diagnosis.rule == "cpu.check"


def test_the_interpreter_can_be_asked_for_without_checks() -> None:
    a, b, c = arrays()
    report = reftile.launch(add, (8,), (a, b, c, 128), backend="interp", check=False)
    assert backend_of(report) == "interp"
    assert np.array_equal(c, a + b)


def test_orders_other_than_that_of_the_program_are_for_the_interpreter() -> None:
    a, b, c = arrays()
    report = reftile.launch(add, (8,), (a, b, c, 128), check=False, schedule="topo")
    assert backend_of(report) == "interp"


def test_what_the_cpu_refuses_runs_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_threads, "MOST_WAITING", 2)
    lock, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with pytest.warns() as caught:
        report = reftile.launch(take_turns, (3,), (lock, out), check=False)
    first, second = caught
    assert first.category is reftile.InterpretedFallback
    assert "on the interpreter" in str(first.message) and "at most 2 such" in str(first.message)
    assert first.filename == __file__, "it names the line that launches"
    assert second.category is reftile.UncheckedFallback
    assert backend_of(report) == "interp" and out[0] == 3


def test_without_numba_all_runs_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "find_spec", lambda name: None)
    a, b, c = arrays()

    @reftile.kernel
    def subtract(a, b, c, tile: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(c, (i,), ct.load(a, (i,), (tile,)) - ct.load(b, (i,), (tile,)))

    with pytest.warns(reftile.InterpretedFallback, match="needs numba"):
        report = reftile.launch(subtract, (8,), (a, b, c, 128), check=False)
    assert backend_of(report) == "interp" and np.array_equal(c, a - b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reftile.launch(subtract, (8,), (a, b, c, 128), check=False, backend="interp")
    with pytest.raises(reftile.ReftileError, match="pip install numba") as caught:
        reftile.launch(subtract, (8,), (a, b, c, 128), check=False, backend="cpu")
    assert caught.value.diagnosis.rule == "cpu.missing"


@reftile.kernel
def say(x, fine):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (4,))
    ct.print(f"block {i}:", tile, f"{ct.astype(tile, ct.float32) / 2:.1f}")
    for k in range(2):
        ct.printf("%d of %d\n", k, i)
    ct.assert_(ct.load(fine, (i,), (1,)) == 1, "not fine")
    ct.print("done")


def test_blocks_print_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    x, fine = np.arange(32, dtype=np.int32), np.ones(8, np.int32)
    text = ""
    for i in range(8):
        row = range(4 * i, 4 * i + 4)
        halves = ", ".join(f"{v / 2:.1f}" for v in row)
        text += f"block {i}: {list(row)} [{halves}]\n0 of {i}\n1 of {i}\ndone\n"
    report = reftile.launch(say, (8,), (x, fine), check=False)
    assert isinstance(report, CpuReport)
    assert capsys.readouterr().out == "".join(report.printed) == text
    found = say.specialise(x, fine)
    report = launch_cpu(found.kernel, (8,), found.values, threads=3)
    assert report.threads == 3 and "".join(report.printed) == text


def test_what_was_printed_before_a_fault_is_said() -> None:
    x, fine = np.arange(8, dtype=np.int32), np.array([1, 0], np.int32)
    found = say.specialise(x, fine)
    with pytest.raises(reftile.ReftileError, match="not fine") as caught:
        launch_cpu(found.kernel, (2,), found.values, threads=1)
    assert "0 of 1\n1 of 1\n" in str(caught.value)


def test_every_element_type_prints_as_in_the_interpreter() -> None:
    for dtype in ("i1", "i4", "i8", "i64", "f8e4m3", "f16", "bf16", "tf32", "f64"):
        kind = "%g" if dtype[0] in "fbt" else "%d"
        values = "[true, false]" if dtype == "i1" else "[-3, 2]" if kind == "%d" else "[-3.0, 2.0]"
        module = parse(f"""\
tile kernel @main(%x: tile<ptr<i32>>) {{
  %v = constant {{value = {values}}} : tile<2x{dtype}>
  %t = print_tko [%v] {{format = "{kind} 100%%"}} : token
  return
}}
""")
        x = np.zeros(1, np.int32)
        printed = launch_cpu(module, (1,), [x]).printed
        assert printed == interpret(module, (1,), [x]).printed, dtype


def test_a_format_that_does_not_fit_is_refused() -> None:
    text = ASSERT.replace("assert %good {message =", "%u = print_tko [%v] {format =")
    with pytest.raises(reftile.ReftileError, match="0 conversions for 1") as caught:
        launch_cpu(parse(text.replace('"}', '"} : token')), (1,), [np.zeros(1, np.int32)])
    assert caught.value.diagnosis.rule == "print_tko.format"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    a, b, c = arrays(100_000)
    found = add.specialise(a, b, c, 64)
    report = launch_cpu(found.kernel, (1563,), found.values, threads=threads)
    assert report.threads == threads
    assert np.array_equal(c, a + b)


def test_the_number_of_threads_may_be_set_by_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REFTILE_CPU_THREADS", "3")
    assert thread_count() == 3


def test_arrays_that_overlap_are_read_before_they_are_written() -> None:
    x = np.arange(96, dtype=np.float32)
    found = shift.specialise(x, 32)
    launch_cpu(found.kernel, (1,), found.values)
    assert np.array_equal(x[32:64], x[:32]) and np.array_equal(x[64:], np.arange(64, 96))
    y = np.arange(40, dtype=np.float32)
    kernel = add.specialise(y[:32], y[:32], y[8:], 32)
    launch_cpu(kernel.kernel, (1,), kernel.values)
    assert np.array_equal(y[8:], 2 * np.arange(32))


def test_atomics_of_many_threads_lose_nothing() -> None:
    total, sums = np.zeros(1, np.int32), np.zeros(1, np.float32)
    found = count.specialise(total, sums)
    launch_cpu(found.kernel, (20_000,), found.values, threads=4)
    assert total[0] == 20_000 and sums[0] == 20_000


def test_blocks_that_wait_for_each_other_all_run() -> None:
    lock, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    found = take_turns.specialise(lock, out)
    report = launch_cpu(found.kernel, (9,), found.values)
    assert report.threads == 9 and out[0] == 9


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be pinned here")
def test_threads_may_stay_on_their_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[set[int]] = []
    put, all = os.sched_setaffinity, os.sched_getaffinity(0)

    def note(thread: int, processors: set[int]) -> None:
        pinned.append(processors)
        put(thread, processors)

    monkeypatch.setattr(os, "sched_setaffinity", note)
    lock, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    found = take_turns.specialise(lock, out)
    launch_cpu(found.kernel, (2,), found.values)
    assert not pinned
    launch_cpu(found.kernel, (2,), found.values, pinned=True)
    assert out[0] == 4
    alone = sorted(sorted(p) for p in pinned if p != all or len(all) == 1)
    assert alone[: len(all)][:2] == [[p] for p in sorted(all)[:2]]
    assert len(pinned) == 4 and os.sched_getaffinity(0) == all


def test_more_waiting_blocks_than_can_run_are_refused() -> None:
    lock, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    found = take_turns.specialise(lock, out)
    with pytest.raises(reftile.ReftileError, match="wait for each other") as caught:
        launch_cpu(found.kernel, (cpu_threads.MOST_WAITING + 1,), found.values)
    assert caught.value.diagnosis.rule == "cpu.co_resident" and out[0] == 0


@pytest.mark.parametrize("grid", [(1 << 24,), (1, 1 << 31), (0,), (1 << 21, 1 << 21, 1 << 21)])
def test_grids_that_are_too_large_are_refused(grid: tuple[int, ...]) -> None:
    found = add.specialise(*arrays(), 128)
    with pytest.raises(reftile.ReftileError, match="blocks") as caught:
        launch_cpu(found.kernel, grid, found.values)
    assert caught.value.diagnosis.rule == "launch.grid"


def test_waiting_without_progress_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_threads, "PATIENCE_SECONDS", 0.3)
    found = wait_for_ever.specialise(np.zeros(1, np.int32))
    with pytest.raises(reftile.ReftileError, match="without any of them ending") as caught:
        launch_cpu(found.kernel, (2,), found.values)
    assert caught.value.diagnosis.rule == "cpu.no_progress"


ASSERT = """\
tile kernel @main(%x: tile<ptr<i32>>) {
  %v, %t = load_ptr_tko %x {ordering = weak} : tile<i32>, token
  %zero = constant {value = 0} : tile<i32>
  %good = cmpi %v, %zero {predicate = equal, signedness = signed} : tile<i1>
  assert %good {message = "x must be zero"}
  return
}
"""


def test_broken_asserts_say_so_with_their_place() -> None:
    module = parse(ASSERT)
    launch_cpu(module, (1,), [np.zeros(1, np.int32)])
    with pytest.raises(reftile.ReftileError, match="x must be zero") as caught:
        launch_cpu(module, (1,), [np.ones(1, np.int32)])
    assert caught.value.diagnosis.rule == "assert.failed"
    assert caught.value.diagnosis.span.line == 5


def test_indices_outside_a_view_are_refused() -> None:
    a, b, c = arrays(256)
    found = add.specialise(a, b, c, 128)
    with pytest.raises(reftile.ReftileError) as caught:
        launch_cpu(found.kernel, (3,), found.values)
    assert caught.value.diagnosis.rule == "view.index"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda a, b, c: [a, b], "takes"),
        (lambda a, b, c: [a.astype(np.float64), b, c], "needs elements of f32, found f64"),
        (lambda a, b, c: [5, b, c], "takes an array"),
    ],
)
def test_wrong_arguments_are_diagnosed(arguments, message: str) -> None:
    text = "tile kernel @main(%a: tile<ptr<f32>>, %b: tile<ptr<f32>>, %c: tile<ptr<f32>>) {\n"
    module = parse(text + "  return\n}\n")
    with pytest.raises(reftile.ReftileError, match=message) as caught:
        launch_cpu(module, (1,), arguments(*arrays(8)))
    assert caught.value.diagnosis.rule == "launch.arguments"


def test_a_second_process_takes_the_code_from_the_cache() -> None:
    a, b, c = arrays(64)
    found = add.specialise(a, b, c, 16)
    launch_cpu(found.kernel, (4,), found.values)
    kept = len(CodeCache().entries())
    program = """
import sys
import numpy as np, reftile, reftile.lang as ct
from reftile.rt.cpu import launch_cpu
sys.path.insert(0, sys.argv[1])
from test_launch_cpu import add, arrays
a, b, c = arrays(64)
found = add.specialise(a, b, c, 16)
report = launch_cpu(found.kernel, (4,), found.values)
assert np.array_equal(c, a + b) and report.compiled_seconds == 0.0
assert "numba" not in sys.modules
"""
    folder = str(__file__).rsplit("/", 1)[0]
    subprocess.run([sys.executable, "-c", program, folder], check=True)
    assert len(CodeCache().entries()) == kept


def test_threads_of_the_host_may_launch_at_once() -> None:
    done: list[bool] = []

    def work(seed: int) -> None:
        a, b, c = arrays(4096 + seed)
        found = add.specialise(a, b, c, 64)
        for _ in range(20):
            c[:] = 0
            launch_cpu(found.kernel, (-(-a.size // 64),), found.values, threads=2)
            done.append(np.array_equal(c, a + b))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(done) == 60 and all(done)


@pytest.mark.parametrize("shift", [0, 1, 3, 8])
@pytest.mark.parametrize("tile", [1024, 1500, 8192])
def test_rows_written_past_the_caches_are_whole(
    shift: int, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "STREAM_BYTES", 0)
    a, b, space = arrays(20_000 + shift)
    space[:] = -1
    c = space[shift:]
    found = add.specialise(a[shift:], b[shift:], c, tile)
    launch_cpu(found.kernel, (-(-c.size // tile),), found.values)
    assert np.array_equal(c, a[shift:] + b[shift:])
    assert (space[:shift] == -1).all()


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
def test_rows_of_every_size_are_written_past_the_caches(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "STREAM_BYTES", 0)
    a = (np.arange(3 * 4100) % 100).astype(dtype).reshape(3, 4100)
    out = np.zeros_like(a)

    @reftile.kernel
    def copy(x, y, width: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(y, (i, 0), ct.load(x, (i, 0), (1, width)))

    found = copy.specialise(a, out, 4100)
    launch_cpu(found.kernel, (3,), found.values)
    assert np.array_equal(out, a)


@reftile.kernel(progress="cooperative")
def hand_over(data, flags, out):
    """Even blocks publish a number, odd ones look whether it is there."""
    i = ct.bid(0)
    pair = i // 2
    if i % 2 == 0:
        ct.store(data, (pair,), ct.full((1,), 42, ct.int32))
        ct.atomic_xchg(flags, pair, 1, memory_order=ct.MemoryOrder.RELEASE)
    else:
        seen = ct.atomic_add(flags, pair, 0, memory_order=ct.MemoryOrder.ACQUIRE)
        if seen == 1:
            ct.store(out, (pair,), ct.load(data, (pair,), (1,)))


def test_what_is_released_is_seen_by_who_acquires_it() -> None:
    pairs = 2000
    data, flags, out = (np.zeros(pairs, np.int32) for _ in range(3))
    found = hand_over.specialise(data, flags, out)
    launch_cpu(found.kernel, (2 * pairs,), found.values, threads=2)
    assert set(out.tolist()) <= {0, 42}
    assert (out == 42).any(), "no pair met: the test shows nothing"


@reftile.kernel(progress="cooperative")
def hand_rows_over(source, data, flags, out, width: ct.Constant[int]):
    """Even blocks publish a row, odd ones wait for it and copy it."""
    i = ct.bid(0)
    pair = i // 2
    if i % 2 == 0:
        ct.store(data, (pair, 0), ct.load(source, (pair, 0), (1, width)) + 1.0)
        ct.atomic_xchg(flags, pair, 1, memory_order=ct.MemoryOrder.RELEASE)
    else:
        while ct.atomic_cas(flags, pair, 1, 1, memory_order=ct.MemoryOrder.ACQUIRE) != 1:
            pass
        ct.store(out, (pair, 0), ct.load(data, (pair, 0), (1, width)))


def test_rows_written_past_the_caches_are_seen_by_who_acquires_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "STREAM_BYTES", 0)
    rng = np.random.default_rng(0)
    source = rng.standard_normal((8, 4096), dtype=np.float32)
    data, out = np.zeros_like(source), np.zeros_like(source)
    flags = np.zeros(8, np.int32)
    found = hand_rows_over.specialise(source, data, flags, out, 4096)
    for _ in range(20):
        data[:], out[:], flags[:] = 0, 0, 0
        launch_cpu(found.kernel, (16,), found.values)
        assert np.array_equal(out, source + 1)


def test_elements_that_do_not_lie_at_multiples_of_their_size_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "STREAM_BYTES", 0)
    a, b, _ = arrays(4096)
    c = np.zeros(4 * a.size + 1, np.uint8)[1:].view(np.float32)
    found = add.specialise(a, b, c, 2048)
    launch_cpu(found.kernel, (2,), found.values)
    assert np.array_equal(c, a + b)


def test_a_kernel_that_was_changed_is_compiled_again() -> None:
    text = """\
tile kernel @main(%x: tile<ptr<i32>>) {
  %one = constant {value = 1} : tile<i32>
  %two = constant {value = 2} : tile<i32>
  %t = store_ptr_tko %x, %one {ordering = weak} : token
  return
}
"""
    kernel = parse(text).kernels[0]
    x = np.zeros(1, np.int32)
    launch_cpu(kernel, (1,), [x])
    assert x[0] == 1
    ops = kernel.body.block.ops
    ops[2].replace_operands({ops[0].results[0]: ops[1].results[0]})
    launch_cpu(kernel, (1,), [x])
    assert x[0] == 2


def test_arrays_that_may_not_be_written_to_are_protected() -> None:
    a, b, c = arrays(64)
    found = add.specialise(a, b, c, 16)
    a.flags.writeable = False
    launch_cpu(found.kernel, (4,), [*found.values])
    assert np.array_equal(c, a + b)
    c.flags.writeable = False
    with pytest.raises(reftile.ReftileError, match="may not be written to") as caught:
        launch_cpu(found.kernel, (4,), found.values)
    assert caught.value.diagnosis.rule == "access.read_only"


ALLOCA = """\
tile kernel @main(%x: tile<ptr<i64>>) {{
  %a = alloca {{num_elem = 3, alignment = 64}} : tile<ptr<i8>>
  %b = alloca {{num_elem = {count}, alignment = {alignment}}} : tile<ptr<i32>>
  %c = alloca {{num_elem = 1, alignment = 8192}} : tile<ptr<i32>>
  %one = constant {{value = 1}} : tile<i32>
  %two = constant {{value = 2}} : tile<i32>
  %t = store_ptr_tko %b, %one {{ordering = weak}} : token
  %u = store_ptr_tko %c, %two, token=%t {{ordering = weak}} : token
  %v, %w = load_ptr_tko %b, token=%u {{ordering = weak}} : tile<i32>, token
  %n = ptr_to_int %b : tile<i64>
  %wide = exti %v {{signedness = signed}} : tile<i64>
  %sum = addi %n, %wide : tile<i64>
  %s = store_ptr_tko %x, %sum {{ordering = weak}} : token
  return
}}
"""


@pytest.mark.parametrize("alignment", [16, 4096, 8192, 1 << 16])
def test_memory_of_a_block_is_aligned_as_asked(alignment: int) -> None:
    x = np.zeros(1, np.int64)
    launch_cpu(parse(ALLOCA.format(count=5, alignment=alignment)), (1,), [x])
    assert x[0] % alignment == 1


@pytest.mark.parametrize(("count", "alignment"), [(1 << 60, 16), (1, 1 << 60)])
def test_more_memory_than_there_is_is_diagnosed(count: int, alignment: int) -> None:
    with pytest.raises(reftile.ReftileError, match="bytes for tiles") as caught:
        launch_cpu(
            parse(ALLOCA.format(count=count, alignment=alignment)), (1,), [np.zeros(1, "i8")]
        )
    assert caught.value.diagnosis.rule == "cpu.memory"
