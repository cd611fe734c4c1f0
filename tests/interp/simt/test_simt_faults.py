"""What the interpreter of threads finds with no GPU, each beside a repaired twin that is silent."""

from __future__ import annotations

import numpy as np
import pytest

from reftile.interp.launch import interpret
from reftile.ir.core import Kernel, Op
from reftile.ir.diagnostics import ReftileError
from tests.interp.pipe.pipe_kernels import line_of
from tests.interp.simt.simt_kernels import (
    SCHEDULES,
    breaks,
    compare,
    drop,
    fails,
    find,
    give,
    product,
    run_product,
    threads,
)

OUT = "%o: tile<ptr<i32>>"
SEEDS = range(4)


def line(op: Op | None) -> int:
    assert op is not None
    return op.span.line


@pytest.mark.parametrize("options", SCHEDULES)
def test_the_product_is_exact_under_every_schedule(options: dict[str, object]) -> None:
    _, exact = run_product(product(), **options)
    assert exact


# Barriers


def exchange(between: str) -> Kernel:
    """Each thread stores its number, and loads that of the thread 32 further."""
    return threads(
        f"""
        %four = constant {{value = 4}} : tile<i32>
        %mask = constant {{value = 63}} : tile<i32>
        %half = constant {{value = 32}} : tile<i32>
        %base = shared_address {{offset = 0}} : tile<i32>
        %inside = muli %thread, %four : tile<i32>
        %at = addi %base, %inside : tile<i32>
        store_shared %thread, %at
        {between}
        %moved = addi %thread, %half : tile<i32>
        %other = andi %moved, %mask : tile<i32>
        %there = muli %other, %four : tile<i32>
        %from = addi %base, %there : tile<i32>
        %x = load_shared %from : tile<i32>
        """
    )


def test_finds_a_missing_barrier() -> None:
    for options in SCHEDULES:
        found = fails(exchange(""), 1, [], **options)
        # Whichever warp comes first: a read of what may not be written, or a write under a read.
        assert found.rule in ("simt.race.unwritten", "simt.race.reused")
        assert "`store_shared`" in found.message and "`load_shared`" in found.message
    interpret(exchange("sync_threads %c0 {threads = 64}"), 1, [])


def test_finds_a_missing_meeting_within_a_warp() -> None:
    def kernel(between: str) -> Kernel:
        return threads(
            f"""
            %four = constant {{value = 4}} : tile<i32>
            %base = shared_address {{offset = 0}} : tile<i32>
            %inside = muli %lane, %four : tile<i32>
            %at = addi %base, %inside : tile<i32>
            store_shared %lane, %at
            {between}
            %x = load_shared %base : tile<i32>
            """,
            warps=1,
        )

    found = fails(kernel(""), 1, [])
    assert found.rule == "simt.race.unwritten"
    interpret(kernel("sync_warp"), 1, [])


@pytest.mark.parametrize(
    "operation",
    ["sync_threads %c0 {threads = 64}", "sync_warp", "%e = elect : tile<i1>", "fence_products"],
)
def test_finds_a_barrier_in_divergent_code(operation: str) -> None:
    def kernel(condition: str) -> Kernel:
        return threads(f"{condition}\nif %some then {{\n{operation}\nyield\n}}")

    found = fails(kernel(compare("%lane", "%c4", "some", "less_than")), 1, [])
    assert found.rule == "simt.divergent"
    assert "lanes 4-31 do not come along" in found.message
    interpret(kernel(compare("%warp", "%c4", "some", "less_than")), 1, [])


@pytest.mark.parametrize("phase", ["%c1", "%c0"])
def test_finds_a_wrong_phase(phase: str) -> None:
    """Phase 1 of a fresh barrier passes at once, and what is read has not been written."""
    kernel = threads(
        f"""
        %base = shared_address {{offset = 0}} : tile<i32>
        %barrier = shared_address {{offset = 64}} : tile<i32>
        {compare("%thread", "%c0", "first")}
        if %first then {{
          init_mbarrier %barrier {{arrivals = 1}}
          yield
        }}
        sync_threads %c0 {{threads = 64}}
        if %first then {{
          store_shared %c4, %base
          arrive_mbarrier %barrier
          yield
        }}
        wait_mbarrier %barrier, {phase}
        %x = load_shared %base : tile<i32>
        """
    )
    if phase == "%c0":
        for seed in SEEDS:
            interpret(kernel, 1, [], schedule="topo", seed=seed)
        return
    rules = {fails(kernel, 1, [], **options).rule for options in SCHEDULES}
    assert rules <= {"simt.race.unwritten", "simt.race.reused", "simt.deadlock"}
    assert "simt.race.unwritten" in rules


def test_finds_a_waiter_that_misses_a_phase() -> None:
    def kernel(meet: str) -> Kernel:
        return threads(
            f"""
            %barrier = shared_address {{offset = 64}} : tile<i32>
            {compare("%thread", "%c0", "first")}
            if %first then {{
              init_mbarrier %barrier {{arrivals = 1}}
              yield
            }}
            sync_threads %c0 {{threads = 64}}
            {compare("%warp", "%c1", "second")}
            if %second then {{
              wait_mbarrier %barrier, %c0
              {meet}
              yield
            }} otherwise {{
              if %first then {{
                arrive_mbarrier %barrier
                yield
              }}
              {meet}
              if %first then {{
                arrive_mbarrier %barrier
                yield
              }}
              yield
            }}
            """
        )

    rules: set[str] = set()
    for seed in range(8):
        try:
            interpret(kernel(""), 1, [], schedule="topo", seed=seed)
        except ReftileError as error:
            rules.add(error.diagnosis.rule)
    # Two phases on, the parity is again that of a phase to wait for: too late either way.
    assert rules and rules <= {"simt.phase_missed", "simt.deadlock"}
    for seed in range(8):
        interpret(kernel("sync_threads %c1 {threads = 64}"), 1, [], schedule="topo", seed=seed)


def test_finds_a_barrier_nobody_knows_to_be_initialised() -> None:
    assert breaks(drop("sync_threads", 0)).rule == "simt.mbarrier_unseen"


def test_finds_one_arrival_too_many() -> None:
    found = breaks(drop("wait_mbarrier", 1))
    assert found.rule == "simt.arrivals"
    assert "2 arrivals" in found.message


# Copies


def test_finds_too_few_announced_bytes() -> None:
    change = give("arrive_mbarrier", 1, bytes=8192)
    found = breaks(change)
    assert found.rule == "simt.transaction_bytes"
    assert "more are under way than were announced" in found.message
    assert line(find(product(), "arrive_mbarrier", 1)) == found.span.line
    # Or the phase is over before a copy has landed, and that is what shows first.
    rules = {breaks(change, schedule="topo", seed=seed).rule for seed in SEEDS}
    assert rules <= {"simt.transaction_bytes", "simt.race.unlanded"}


def test_finds_too_many_announced_bytes() -> None:
    found = breaks(give("arrive_mbarrier", 1, bytes=24576))
    assert found.rule == "simt.transaction_bytes"
    assert "8192 bytes never come" in found.message


def test_finds_a_slot_that_is_filled_too_early() -> None:
    """One product more may be in flight than the release of a slot allows."""
    found = breaks(give("wait_products", 0, in_flight=2))
    assert found.rule == "simt.race.in_flight"
    assert "the product has read what is overwritten" in found.message
    for seed in SEEDS:
        _, exact = run_product(product(), schedule="topo", seed=seed)
        assert exact


def test_finds_a_read_before_the_copy_has_landed() -> None:
    found = breaks(drop("wait_mbarrier", 0))
    assert found.rule == "simt.race.unlanded"
    assert "`load_tensor`" in found.message and "`multiply_async`" in found.message


def copied(before_read: str) -> Kernel:
    return threads(
        f"""
        %sixteen = constant {{value = 16}} : tile<i32>
        %wide_16 = constant {{value = 16}} : tile<i64>
        %base = shared_address {{offset = 0}} : tile<i32>
        %pointer = global_address %o : tile<i64>
        %wide = exti %thread {{signedness = unsigned}} : tile<i64>
        %bytes = muli %wide, %wide_16 : tile<i64>
        %from = addi %pointer, %bytes : tile<i64>
        %inside = muli %thread, %sixteen : tile<i32>
        %to = addi %base, %inside : tile<i32>
        copy_async %from, %to {{bytes = 16}}
        commit_async
        {before_read}
        %x = load_shared %to : tile<i32>
        """,
        OUT,
    )


def test_finds_a_read_before_the_copy_of_a_thread_has_landed() -> None:
    data = np.arange(256, dtype=np.int32)
    assert fails(copied(""), 1, [data]).rule == "simt.race.unlanded"
    interpret(copied("wait_async"), 1, [data])


def test_a_wait_for_copies_covers_those_of_the_thread_alone() -> None:
    data = np.arange(256, dtype=np.int32)
    others = "wait_async\n%y = load_shared %base : tile<i32>"
    assert fails(copied(others), 1, [data]).rule == "simt.race.unlanded"
    met = "wait_async\nsync_threads %c0 {threads = 64}\n%y = load_shared %base : tile<i32>"
    interpret(copied(met), 1, [data])


def test_finds_a_missing_fence_between_proxies() -> None:
    found = breaks(drop("fence_proxy_async"))
    assert found.rule == "simt.race.proxy"
    assert "fence_proxy_async" in found.hint


def test_finds_a_copy_under_way_at_the_end() -> None:
    assert breaks(drop("wait_bulk")).rule == "simt.exit"


# Products


def multiplied(before: str, after: str, acc: str = "%x") -> Kernel:
    d = "wgmma.m64n64.d<64x64>"
    return threads(
        f"""
        %start = shared_address {{offset = 0}} : tile<i32>
        %rhs = matrix_descriptor %start {{leading = 16, stride = 1024, swizzle = 128}} : tile<i64>
        %a = constant {{value = 1.0}} : tile<64x16xbf16, layout=wgmma.m64k16.b16.a<64x16>>
        %x = constant {{value = 2.0}} : tile<64x64xf32, layout={d}>
        {before}
        %p = multiply_async %a, %rhs, {acc} {{dtype = bf16}} : pending<64x64xf32, layout={d}>
        commit_products
        {after}
        """,
        warps=4,
        shared_bytes=16384,
    )


WAITED = "%v = wait_products %p : tile<64x64xf32, layout=wgmma.m64n64.d<64x64>>"


def test_finds_use_of_an_accumulator_in_flight() -> None:
    use = "%y = addf {0}, {0} : tile<64x64xf32, layout=wgmma.m64n64.d<64x64>>"
    found = fails(multiplied("fence_products", use.format("%x") + "\n" + WAITED), 1, [])
    assert found.rule == "simt.accumulator_in_flight"
    interpret(multiplied("fence_products", WAITED + "\n" + use.format("%v")), 1, [])


def test_finds_registers_that_no_fence_hands_to_a_product() -> None:
    assert fails(multiplied("", WAITED), 1, []).rule == "simt.fence_products"
    interpret(multiplied("fence_products", WAITED), 1, [])


@pytest.mark.parametrize("waits", [False, True])
def test_finds_a_write_to_an_operand_in_flight(waits: bool) -> None:
    a, d = "wgmma.m64k16.b16.a<64x16>", "wgmma.m64n64.d<64x64>"
    lent, pending = f"tile<64x16xbf16, layout={a}>", f"pending<64x64xf32, layout={d}>"
    in_flight = 0 if waits else 1
    kernel = threads(
        f"""
        %start = shared_address {{offset = 0}} : tile<i32>
        %rhs = matrix_descriptor %start {{leading = 16, stride = 1024, swizzle = 128}} : tile<i64>
        %first = constant {{value = 1.0}} : {lent}
        %nothing = open_accumulator : {pending}
        %last, %sum = for %c0, %c3, %c1, [%first, %nothing] : {lent}, {pending} body(
            %i: tile<i32>, %a: {lent}, %acc: {pending}) {{
          fence_products
          %p = multiply_async %a, %rhs, %acc {{dtype = bf16, fresh}} : {pending}
          commit_products
          wait_products {{in_flight = {in_flight}}}
          %next = addf %a, %a : tile<64x16xbf16, layout={a}>
          continue %next, %p
        }}
        %v = wait_products %sum : tile<64x64xf32, layout={d}>
        """,
        warps=4,
        shared_bytes=16384,
    )
    if waits:
        interpret(kernel, 1, [])
        return
    found = fails(kernel, 1, [])
    assert found.rule == "simt.operand_in_flight"


@pytest.mark.parametrize("in_flight", [0, 1])
def test_finds_an_operand_that_is_computed_anew_in_flight(in_flight: int) -> None:
    """No loop carries it; it is a part of what is computed."""
    a, d = "wgmma.m64k16.b16.a<64x16>", "wgmma.m64n64.d<64x64>"
    wide = "tile<64x32xbf16, layout=wgmma.m64k16.b16.a<64x32>>"
    pending = f"pending<64x64xf32, layout={d}>"
    kernel = threads(
        f"""
        %start = shared_address {{offset = 0}} : tile<i32>
        %rhs = matrix_descriptor %start {{leading = 16, stride = 1024, swizzle = 128}} : tile<i64>
        %one = constant {{value = 1.0}} : {wide}
        %nothing = open_accumulator : {pending}
        %sum = for %c0, %c3, %c1, [%nothing] : {pending} body(%i: tile<i32>, %acc: {pending}) {{
          %whole = addf %one, %one : {wide}
          %part = extract %whole, [%c0, %c1] : tile<64x16xbf16, layout={a}>
          fence_products
          %p = multiply_async %part, %rhs, %acc {{dtype = bf16, fresh}} : {pending}
          commit_products
          wait_products {{in_flight = {in_flight}}}
          continue %p
        }}
        %v = wait_products %sum : tile<64x64xf32, layout={d}>
        """,
        warps=4,
        shared_bytes=16384,
    )
    if not in_flight:
        interpret(kernel, 1, [])
        return
    found = fails(kernel, 1, [])
    assert found.rule == "simt.operand_in_flight"
    assert line_of(found).startswith("%whole = addf")


def test_finds_a_result_that_is_still_in_flight() -> None:
    assert breaks(give("wait_products", 1, in_flight=1)).rule == "simt.product_unfinished"


def test_finds_warps_of_a_group_that_part() -> None:
    d = "wgmma.m64n64.d<64x64>"
    kernel = threads(
        f"""
        %start = shared_address {{offset = 0}} : tile<i32>
        %rhs = matrix_descriptor %start {{leading = 16, stride = 1024, swizzle = 128}} : tile<i64>
        %a = constant {{value = 1.0}} : tile<64x16xbf16, layout=wgmma.m64k16.b16.a<64x16>>
        {compare("%warp", "%c3", "some", "less_than")}
        if %some then {{
          %x = open_accumulator : pending<64x64xf32, layout={d}>
          fence_products
          %p = multiply_async %a, %rhs, %x {{dtype = bf16, fresh}} : pending<64x64xf32, layout={d}>
          commit_products
          %v = wait_products %p : tile<64x64xf32, layout={d}>
          yield
        }}
        """,
        warps=4,
        shared_bytes=16384,
    )
    found = fails(kernel, 1, [])
    assert found.rule == "simt.deadlock"
    assert "3 of the 4 warps have issued" in found.notes[0][0]


# Deadlock


def test_a_deadlock_shows_who_waits_for_what() -> None:
    found = breaks(give("init_mbarrier", 2, arrivals=2))
    assert found.rule == "simt.deadlock"
    texts = [text for text, _ in found.notes]
    assert texts[0].startswith("warps 0, 1, 2, 3 of block (0, 0, 0) wait for phase 1 of")
    assert "warp 4, lanes 0, of block (0, 0, 0) waits for phase 0 of" in texts[1]
    assert "1 of 2 arrivals" in texts[1]
    assert all(span is not None for _, span in found.notes)


# Bank conflicts


@pytest.mark.parametrize(("stride_bytes", "extra"), [(4, 0), (8, 1), (128, 31)])
def test_bank_conflicts_are_counted_where_they_happen(stride_bytes: int, extra: int) -> None:
    kernel = threads(
        f"""
        %stride = constant {{value = {stride_bytes}}} : tile<i32>
        %base = shared_address {{offset = 0}} : tile<i32>
        %inside = muli %lane, %stride : tile<i32>
        %at = addi %base, %inside : tile<i32>
        store_shared %lane, %at
        """,
        warps=1,
    )
    (found,) = interpret(kernel, 1, []).conflicts
    assert (found.op, found.accesses, found.ideal, found.extra) == ("store_shared", 1, 1, extra)
    assert found.span.source.line(found.span.line).strip() == "store_shared %lane, %at"


# Whatever is left out


NEEDED = {
    "wait_mbarrier": {"simt.race.unlanded", "simt.race.in_flight", "simt.arrivals"},
    "sync_threads": {"simt.no_mbarrier", "simt.mbarrier_unseen", "simt.race.unwritten"},
    "fence_proxy_async": {"simt.race.proxy"},
    "fence_products": {"simt.fence_products"},
    "fence_mbarrier_init": {"simt.mbarrier_unseen"},
    "arrive_mbarrier": {"simt.deadlock", "simt.transaction_bytes"},
    "init_mbarrier": {"simt.no_mbarrier"},
    "commit_bulk": {"simt.exit"},
    "wait_bulk": {"simt.exit"},
    "commit_products": {"simt.race.unlanded", "simt.race.in_flight"},
}
"""Operations without results that order something, and what their absence breaks."""


@pytest.mark.parametrize("name", NEEDED)
def test_every_operation_that_is_left_out_is_missed_under_every_schedule(name: str) -> None:
    kernel = product()
    count = sum(op.name == name and not op.results for op in kernel.walk())
    assert count
    for number in range(count):
        for options in SCHEDULES:
            assert breaks(drop(name, number), **options).rule in NEEDED[name]


def test_nothing_else_is_there_to_leave_out() -> None:
    """What orders is above; `sync_warp` lets lanes meet again that the program does not need."""
    ordering = {
        op.name
        for op in product().walk()
        if op.definition.effects in ("barrier", "async") and not op.results
    }
    assert ordering - set(NEEDED) == {
        "sync_warp",
        "load_tensor",
        "store_tensor",
        "prefetch_tensor_map",
        "wait_products",
    }
