"""Every misuse of the pipe front end is a diagnosis: a rule, the place in the source, a hint."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from reftile import pipe
from reftile.ir.diagnostics import Diagnosis, ReftileError, ReftileErrors
from reftile.lang.pipe.kernels import PipeKernel
from reftile.pipe import Pointer, bfloat16, float16, float32, i32

A = np.ones((128, 128), np.float16)
C = np.ones((128, 128), np.float32)


def diagnosis_of(run: Callable[[], object]) -> Diagnosis:
    """The (first) finding."""
    with pytest.raises((ReftileError, ReftileErrors)) as caught:
        run()
    error: Any = caught.value
    return error.diagnosis if isinstance(error, ReftileError) else error.diagnoses[0]


def check(kernel: PipeKernel, rule: str, marked: str, *args: object) -> Diagnosis:
    """The kernel is refused by `rule`, at source that contains `marked`, with a hint."""
    found = diagnosis_of(lambda: kernel.specialise(*args))
    assert found.rule == rule, found
    span = found.span
    assert marked in span.source.text[span.start : span.end], found
    assert found.hint, found
    return found


# Products


def test_shapes_that_do_not_meet() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=128):
            a = pipe.alloc_shared((64, 32), float16)
            b = pipe.alloc_shared((64, 64), float16)
            total = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(total)
            pipe.gemm(a, b, total)

    found = check(kernel, "lang.pipe.gemm_shape", "pipe.gemm(a, b, total)", C)
    assert "(64, 32) times (64, 64) is no (64, 64)" in found.message
    assert "transpose_B" in found.hint


def test_operands_of_two_types() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=128):
            a = pipe.alloc_shared((64, 32), float16)
            b = pipe.alloc_shared((32, 64), bfloat16)
            total = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(total)
            pipe.gemm(a, b, total)

    assert "float16 and bfloat16" in diagnosis_of(lambda: kernel.specialise(C)).message


def test_the_right_operand_is_in_shared_memory() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=128):
            a = pipe.alloc_shared((64, 32), float16)
            b = pipe.alloc_fragment((32, 64), float16)
            total = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(total)
            pipe.gemm(a, b, total)

    found = diagnosis_of(lambda: kernel.specialise(C))
    assert found.rule == "lang.pipe.gemm_place"
    assert "`rhs` must be shared memory, found a float16 fragment" in found.message


def test_products_of_four_warps_in_a_block_of_three() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=96):
            a = pipe.alloc_shared((64, 32), float16)
            total = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(total)
            pipe.gemm(a, a, total, transpose_B=True)

    found = check(kernel, "lang.pipe.unit", "pipe.gemm", C)
    assert 'unit="mma"' in found.hint


def test_accumulators_that_are_too_wide() -> None:
    @pipe.kernel
    def multiplied(a, b):
        with pipe.Kernel(1, threads=128):
            a_shared = pipe.alloc_shared((64, 32), float16)
            b_shared = pipe.alloc_shared((32, 320), float16)
            total = pipe.alloc_fragment((64, 320), float32)
            pipe.clear(total)
            pipe.copy(a[0, 0], a_shared)
            pipe.copy(b[0, 0], b_shared)
            pipe.gemm(a_shared, b_shared, total)

    found = diagnosis_of(lambda: multiplied.specialise(A, np.ones((32, 320), np.float16)))
    assert found.rule == "mma_start.extents"
    assert "pipe.gemm" in found.span.source.text[found.span.start : found.span.end]


# What is read before it is filled


def test_a_fragment_that_nothing_has_filled() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=128):
            total = pipe.alloc_fragment((64, 64), float32)
            pipe.copy(total, c[0, 0])

    found = check(kernel, "lang.pipe.unfilled", "pipe.copy(total", C)
    assert "nothing has filled it" in found.message


def test_a_fragment_that_one_branch_has_filled() -> None:
    @pipe.kernel
    def kernel(c, wanted):
        with pipe.Kernel(1, threads=128):
            total = pipe.alloc_fragment((64, 64), float32)
            if wanted == 1:
                pipe.clear(total)
            pipe.copy(total, c[0, 0])

    check(kernel, "lang.pipe.unfilled", "pipe.copy(total", C, 1)


def test_a_product_into_a_fragment_that_nothing_has_filled() -> None:
    for target in ("sm_80", "sm_90a"):

        @pipe.kernel(target=target)
        def kernel(a):
            with pipe.Kernel(1, threads=128):
                shared = pipe.alloc_shared((64, 32), float16)
                total = pipe.alloc_fragment((64, 64), float32)
                pipe.copy(a[0, 0], shared)
                pipe.gemm(shared, shared, total, transpose_B=True)

        check(kernel, "lang.pipe.unfilled", "pipe.gemm", A)


def test_shared_memory_that_nothing_was_copied_to() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 64), float32)
            pipe.copy(shared, c[0, 0])

    found = check(kernel, "lang.pipe.unfilled", "pipe.copy(shared", C)
    assert "nothing has been copied to it" in found.message


def test_shared_memory_of_a_loop_that_has_ended() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 32), float16)
            held = pipe.alloc_fragment((64, 32), float32)
            for step in pipe.Pipelined(4, num_stages=2):
                pipe.copy(a[0, step * 32], shared)
                pipe.copy(shared, held)
            pipe.copy(shared, a[0, 0])

    found = check(kernel, "lang.pipe.unfilled", "pipe.copy(shared, a", A)
    assert "a loop that has ended" in found.message or "loop that has ended" in found.message


# Copies


def test_copies_between_arrays() -> None:
    @pipe.kernel
    def kernel(a, c):
        with pipe.Kernel(1, threads=128):
            pipe.copy(a[0, 0], c[0, 0])

    found = check(kernel, "lang.pipe.copy_places", "pipe.copy", A, C)
    assert "a region of `a` cannot be copied to a region of `c`" in found.message


def test_copies_of_what_is_no_place() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            held = pipe.alloc_fragment((64, 64), float32)
            pipe.copy(3, held)

    check(kernel, "lang.pipe.copy_places", "pipe.copy", A)


def test_copies_of_two_shapes() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 64), float16)
            held = pipe.alloc_fragment((64, 32), float32)
            pipe.copy(a[0, 0], shared)
            pipe.copy(shared, held)

    check(kernel, "lang.pipe.copy_shape", "pipe.copy(shared, held)", A)


def test_copies_of_two_types() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 64), float16)
            pipe.copy(c[0, 0], shared)

    found = check(kernel, "lang.pipe.copy_dtype", "pipe.copy", C)
    assert "float32" in found.message and "fragment" in found.hint


def test_regions_that_do_not_begin_at_a_multiple() -> None:
    @pipe.kernel
    def kernel(a, start):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 64), float16)
            pipe.copy(a[start, 0], shared)

    found = check(kernel, "lang.pipe.copy_offset", "pipe.copy", A, 3)
    assert "axis 0 of `a` is copied in tiles of 64" in found.message


def test_slices_of_arrays() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 64), float16)
            pipe.copy(a[0:64, 0:64], shared)

    check(kernel, "lang.pipe.region", "a[0:64, 0:64]", A)


# Loops and memory


@pytest.mark.parametrize("stages", [0, -1, 40])
def test_stages(stages: int) -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 32), float16)
            for step in pipe.Pipelined(4, num_stages=stages):
                pipe.copy(a[0, step * 32], shared)

    found = check(kernel, "lang.pipe.stages", "pipe.Pipelined(4, num_stages=stages)", A)
    assert str(stages) in found.message


def test_stages_that_are_no_number() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            for _step in pipe.Pipelined(4, num_stages=A):
                pass

    check(kernel, "lang.constant.int", "pipe.Pipelined(4, num_stages=A)", A)


@pytest.mark.parametrize(("target", "stages"), [("sm_80", 6), ("sm_90a", 8)])
def test_shared_memory_over_the_limit(target: str, stages: int) -> None:
    @pipe.kernel(target=target)
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((128, 128), float16)
            held = pipe.alloc_fragment((128, 128), float32)
            for step in pipe.Pipelined(8, num_stages=stages):
                pipe.copy(a[step * 128, 0], shared)
                pipe.copy(shared, held)

    found = diagnosis_of(lambda: kernel.specialise(A))
    assert found.rule == "pipe.shared_memory"
    assert str(32768 * stages)[:3] in found.message
    assert found.span.source.text


def test_a_pipeline_that_is_left() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            shared = pipe.alloc_shared((64, 32), float16)
            for step in pipe.Pipelined(4):
                pipe.copy(a[0, step * 32], shared)
                if step == 2:
                    break

    check(kernel, "lang.pipe.pipelined", "pipe.Pipelined(4)", A)


def test_allocations_in_a_loop() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            for _step in range(4):
                pipe.alloc_shared((64, 32), float16)

    check(kernel, "lang.pipe.allocation", "pipe.alloc_shared", A)


def test_allocations_without_a_grid() -> None:
    @pipe.kernel(warps=4)
    def kernel(a):
        pipe.alloc_fragment((64, 32), float16)

    check(kernel, "lang.pipe.allocation", "pipe.alloc_fragment", A)


@pytest.mark.parametrize("threads", [0, 100, 2048])
def test_threads(threads: int) -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=threads):
            pass

    found = diagnosis_of(lambda: kernel.specialise(A))
    assert found.rule == "lang.pipe.threads"


def test_two_grids() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            pass
        with pipe.Kernel(1, threads=128):
            pass

    assert diagnosis_of(lambda: kernel.specialise(A)).rule == "lang.pipe.grid"


def test_counters_of_parallel() -> None:
    @pipe.kernel
    def wrong_extents(a):
        with pipe.Kernel(1, threads=128):
            held = pipe.alloc_fragment((64, 32), float32)
            pipe.clear(held)
            for i, j in pipe.Parallel(32, 64):
                held[i, j] = 1.0

    check(wrong_extents, "lang.pipe.parallel", "held[i, j] = 1.0", A)

    @pipe.kernel
    def one_counter(a):
        with pipe.Kernel(1, threads=128):
            row = pipe.alloc_fragment((32,), float32)
            pipe.clear(row)
            for i, _j in pipe.Parallel(32, 64):
                row[i] = 1.0

    check(one_counter, "lang.pipe.parallel", "row[i] = 1.0", A)

    @pipe.kernel
    def number(a):
        with pipe.Kernel(1, threads=128):
            held = pipe.alloc_fragment((64, 32), float32)
            pipe.clear(held)
            for _i in range(4):
                held[0, 1] = 1.0

    check(number, "lang.pipe.parallel", "held[0, 1] = 1.0", A)


def test_a_fragment_is_no_tile() -> None:
    @pipe.kernel
    def kernel(a):
        with pipe.Kernel(1, threads=128):
            held = pipe.alloc_fragment((64, 32), float32)
            pipe.clear(held)
            pipe.static_assert(True)
            held[...] = held + 1.0

    found = check(kernel, "lang.operator", "held + 1.0", A)
    assert "x[...]" in found.hint


# Kernels


def test_a_kernel_without_a_grid_cannot_be_called() -> None:
    @pipe.kernel(warps=4)
    def kernel(a):
        pass

    found = diagnosis_of(lambda: kernel(A))
    assert found.rule == "lang.kernel.call"
    assert "kernel[grid](...)" in found.hint


def test_a_kernel_without_warps() -> None:
    @pipe.kernel
    def kernel(a):
        pass

    found = diagnosis_of(lambda: kernel.specialise(A))
    assert found.rule == "lang.pipe.warps"
    assert "threads=128" in found.hint


def test_building_needs_types() -> None:
    @pipe.kernel(warps=4)
    def kernel(a, n: i32):
        pass

    found = diagnosis_of(kernel.build)
    assert found.rule == "lang.pipe.build"
    assert "`a`" in found.message


def test_pointers_have_one_type() -> None:
    @pipe.kernel(warps=4)
    def kernel(a: Pointer[bfloat16]):
        pass

    assert diagnosis_of(lambda: kernel.specialise(A)).rule == "lang.argument.dtype"


def test_targets_are_known() -> None:
    with pytest.raises(ReftileError, match="sm_70"):

        @pipe.kernel(target="sm_70")
        def kernel(a):
            pass


# Operations of the level


def test_values_do_not_leave_a_role() -> None:
    @pipe.kernel(warps=4)
    def kernel(n: i32, c: Pointer[float32]):
        with pipe.role("all", warps=4):
            found = n + 1
        with pipe.elected():
            pipe.wait_copies("bulk", in_flight=found)

    found = diagnosis_of(kernel.build)
    assert found.rule == "lang.undefined"
    assert "inside a role" in found.message


def test_only_tokens_leave_elected() -> None:
    @pipe.kernel(warps=4)
    def kernel(n: i32):
        with pipe.elected():
            found = n + 1
        pipe.static_assert(True)
        n = found

    found = diagnosis_of(kernel.build)
    assert found.rule == "lang.undefined"
    assert "only tokens leave" in found.message


def test_words_are_checked() -> None:
    @pipe.kernel(warps=4)
    def kernel(n: i32):
        pipe.commit_copies("warp")

    found = diagnosis_of(kernel.build)
    assert found.rule == "lang.pipe.word"
    assert "bulk, thread" in found.message


def test_a_result_in_flight_is_used_once() -> None:
    @pipe.kernel(warps=4)
    def kernel(n: i32):
        a = pipe.alloc_buffer((64, 64), bfloat16)
        flying = pipe.mma_start(a, a.T)
        pipe.mma_wait(flying)
        pipe.mma_wait(flying)

    found = diagnosis_of(kernel.build)
    assert found.rule == "pipe.pending_affine"
    assert "mma_start" in found.span.source.text[found.span.start : found.span.end]


def test_slices_of_buffers_keep_panels() -> None:
    @pipe.kernel(warps=4)
    def kernel(n: i32):
        pipe.alloc_buffer((64, 64), bfloat16).part((0, 0), (4, 64))

    found = diagnosis_of(kernel.build)
    assert found.rule == "lang.pipe.part"
    assert "groups of 8 rows" in found.hint


def test_other_contexts_are_python() -> None:
    @pipe.kernel(warps=4)
    def kernel(n: i32):
        with open("x"):
            pass

    assert diagnosis_of(kernel.build).rule.startswith("lang.")


# What people of other languages write


def one(body: Callable[..., None]) -> PipeKernel:
    """A kernel of one block whose statements are those of a helper."""

    @pipe.kernel
    def kernel(x, c):
        with pipe.Kernel(1, threads=128) as block:
            part = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(part)
            body(x, c, part, block)

    return kernel


def test_slices_elements_and_regions_as_numbers() -> None:
    def slices(x, c, part, block):
        pipe.copy(part, c[block * 64 : block * 64 + 64, 0:64])

    def assigns(x, c, part, block):
        for i, j in pipe.Parallel(64, 64):
            c[i, j] = part[i, j]

    def reads(x, c, part, block):
        for i, j in pipe.Parallel(64, 64):
            part[i, j] = c[i, j]

    found = check(one(slices), "lang.subscript", "block * 64", A, C)
    assert "A[row, column]" in found.hint
    found = check(one(assigns), "lang.pipe.region", "c[i, j] =", A, C)
    assert "copy(fragment" in found.hint
    found = check(one(reads), "lang.type.number", "c[i, j]", A, C)
    assert "copy(A" in found.hint


def test_counters_in_another_order() -> None:
    def turned(x, c, part, block):
        for i, j in pipe.Parallel(64, 64):
            part[j, i] = part[i, j] + 1.0

    found = check(one(turned), "lang.pipe.parallel", "part[j, i]", A, C)
    assert "in their order" in found.message
    assert "permute" in found.hint


def test_hints_name_what_pipe_kernels_have() -> None:
    def chooses(x, c, part, block):
        for i, j in pipe.Parallel(64, 64):
            if part[i, j] < 0.0:
                part[i, j] = 0.0

    def text(x, c, part, block):
        pipe.alloc_fragment((64, 64), "float32")

    for body, rule in ((chooses, "lang.condition"), (text, "lang.type.dtype")):
        found = check(one(body), rule, "", A, C)
        assert "ct." not in found.hint
        assert all(hasattr(pipe, n) for n in re.findall(r"pipe\.(\w+)", found.hint))

    @pipe.kernel(warps=4)
    def returns(c):
        return c

    found = diagnosis_of(lambda: returns.specialise(C))
    assert found.rule == "lang.return"
    assert "ct." not in found.hint


def test_a_name_that_is_nearly_one_and_a_call_that_nearly_fits() -> None:
    def misspelt(x, c, part, block):
        pipe.coppy(part, c[0, 0])  # pyright: ignore

    def policy(x, c, part, block):
        pipe.gemm(part, part, part, policy=1)  # pyright: ignore

    found = diagnosis_of(lambda: one(misspelt).specialise(A, C))
    assert "is `copy` meant?" in found.message
    found = check(one(policy), "lang.arguments", "policy=1", A, C)
    assert "gemm(lhs, rhs, total, /, *, transpose_A=False, transpose_B=False" in found.hint


def test_an_array_of_several_numbers_is_no_number() -> None:
    numbers = np.zeros(3)

    def fills(x, c, part, block):
        pipe.fill(part, numbers)

    found = diagnosis_of(lambda: one(fills).specialise(A, C))
    assert found.rule == "lang.type.number"


def test_blocks_that_write_the_same_are_told_what_mends_it() -> None:
    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(2, threads=128):
            part = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(part)
            pipe.copy(part, c[0, 0])

    found = diagnosis_of(lambda: kernel(C.copy()))
    assert found.rule == "pipe.race.unwritten"
    assert "nothing orders blocks" in found.message
    assert "atomics" in found.hint


def test_a_long_chain_of_calls_is_cut() -> None:
    def again(part):
        again(part)

    def endless(x, c, part, block):
        again(part)

    found = diagnosis_of(lambda: one(endless).specialise(A, C))
    assert found.rule == "lang.recursion"
    assert "calls more" in str(found)
    assert len(str(found).splitlines()) < 30


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"warps": "4"}, "lang.pipe.warps"),
        ({"warps": 4, "cluster": 2.5}, "lang.pipe.cluster"),
        ({"warps": 4, "cluster": (1, 1, 1, 2)}, "lang.pipe.cluster"),
        ({"warps": 4, "target": ["sm_80"]}, "lang.pipe.target"),
    ],
)
def test_options_of_a_kernel(options: dict[str, Any], rule: str) -> None:
    def kernel(c): ...

    assert diagnosis_of(lambda: pipe.kernel(**options)(kernel)).rule == rule


def test_another_target_keeps_all_else() -> None:
    @pipe.kernel(warps=4, cluster=(2,), progress="co_resident")
    def kernel(c: Pointer[float32]): ...

    other = kernel.for_target("sm_90a").shape
    assert other == kernel.shape
    assert kernel.for_target("sm_80").shape.progress == "co_resident"


def test_an_array_without_elements_leaves_no_work() -> None:
    """NumPy gives some of them strides of zero, which are no view's."""

    @pipe.kernel
    def kernel(c):
        with pipe.Kernel(pipe.ceildiv(c.shape[0], 64), threads=128) as block:
            part = pipe.alloc_fragment((64, 64), float32)
            pipe.clear(part)
            pipe.copy(part, c[block * 64, 0])

    empty = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (0, 64), (0, 0))
    found = diagnosis_of(lambda: kernel(empty))
    assert found.rule == "launch.grid"
    assert "launch nothing" in found.hint
