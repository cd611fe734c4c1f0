"""One test for each fault that a pipe kernel may have: its rule, the line, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from reftile.ir.diagnostics import ReftileErrors
from tests.interp.pipe.pipe_kernels import (
    Edit,
    attention,
    gemm_gfx942,
    gemm_sm80,
    gemm_sm90,
    line_of,
    line_with,
    noted_lines,
    violation,
)

ALL: list[dict[str, Any]] = [
    {"schedule": "program"},
    {"schedule": "topo", "seed": 1},
    {"schedule": "adversarial"},
]
MISSING_WAIT: list[Edit] = [
    ("%landed = wait_barrier %full, %i, %phase : token", "%landed = make_token : token")
]


@pytest.mark.parametrize("options", ALL)
def test_missing_barrier_between_copy_and_product(options: dict[str, Any]) -> None:
    found = violation(gemm_sm90(), MISSING_WAIT, **options)
    # Who comes second depends on the schedule.
    if found.rule == "pipe.race.unlanded":
        assert line_of(found).startswith("%next = mma_start")
        assert "`wait_barrier`" in found.hint
    else:
        assert found.rule == "pipe.race.in_flight"
        assert line_of(found).startswith("copy_in")


@pytest.mark.parametrize("options", ALL)
def test_read_before_a_copy_has_landed(options: dict[str, Any]) -> None:
    edit = ("acc=%acc, accumulate=%more, token=%landed", "acc=%acc, accumulate=%more")
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule == "pipe.race.unlanded"
    assert "nothing says that the copy has landed" in found.message
    assert line_of(found).startswith("%next = mma_start")
    assert noted_lines(found)[0].startswith("copy_in %a_tiles")
    assert found.data["role"] in ("consumer 0", "consumer 1")
    assert found.data["other_role"] == "producer"


@pytest.mark.parametrize("options", ALL)
def test_read_before_thread_copies_have_landed(options: dict[str, Any]) -> None:
    found = violation(gemm_sm80(), [("thread, in_flight = 2", "thread, in_flight = 3")], **options)
    assert found.rule == "pipe.race.unlanded"
    assert line_of(found).startswith("%lhs, %a_read = load_buffer")
    assert "`wait_copies {engine = thread}`" in found.hint


@pytest.mark.parametrize("options", ALL)
def test_ring_slot_reused_while_a_product_reads_it(options: dict[str, Any]) -> None:
    edit = ("%read = mma_wait {in_flight = 1}", "%read = mma_wait {in_flight = 2}")
    found = violation(gemm_sm90(384), [edit], **options)
    assert found.rule == "pipe.race.in_flight"
    assert line_of(found).startswith("copy_in %a_tiles")
    assert noted_lines(found)[0].startswith("%next = mma_start")
    assert "`mma_wait`" in found.hint and "a barrier between consumer" in found.hint
    assert "%a_ring" in found.message and "%a_ring[0] (bytes 0 to 16383" in found.notes[1][0]


@pytest.mark.parametrize("options", ALL)
def test_ring_slot_reused_without_waiting(options: dict[str, Any]) -> None:
    edit = ("%b_half, barrier=%full, slot=%i, multicast=%both, token=%free",
            "%b_half, barrier=%full, slot=%i, multicast=%both")  # fmt: skip
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule == "pipe.race.in_flight"
    assert line_of(found).startswith("copy_in %b_halves")


@pytest.mark.parametrize("options", ALL)
def test_ring_slot_reused_while_a_load_reads_it(options: dict[str, Any]) -> None:
    found = violation(
        gemm_sm80(), [("join_tokens %landed, %read", "join_tokens %landed")], **options
    )
    assert found.rule == "pipe.race.reused"
    assert line_of(found).startswith("copy_in %a_tiles")
    assert "`load_buffer` of line" in found.hint


@pytest.mark.parametrize("options", ALL)
def test_source_of_a_copy_out_overwritten(options: dict[str, Any]) -> None:
    edit = ("in_flight = 1, until = source_free", "in_flight = 2, until = source_free")
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule == "pipe.race.in_flight"
    assert line_of(found).startswith("%written = store_buffer")
    assert "`wait_copies {engine = bulk}`" in found.hint


@pytest.mark.parametrize("options", ALL)
def test_missing_proxy_fence(options: dict[str, Any]) -> None:
    edit = ("%c_tiles, [%c_row, %piece_column], token=%fenced",
            "%c_tiles, [%c_row, %piece_column], token=%written")  # fmt: skip
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule == "pipe.race.proxy"
    assert line_of(found).startswith("copy_out %buffer")
    assert noted_lines(found)[0].startswith("%written = store_buffer")
    assert "`fence_proxy {space = shared}`" in found.hint


def test_a_fence_of_the_other_space_does_not_help() -> None:
    edit = ("fence_proxy %written :", "fence_proxy %written {space = global} :")
    assert violation(gemm_sm90(), [edit]).rule == "pipe.race.proxy"
    gemm_sm90().run([("fence_proxy %written :", "fence_proxy %written {space = all} :")])


@pytest.mark.parametrize("options", ALL)
def test_wrong_first_phase_of_the_consumer(options: dict[str, Any]) -> None:
    edit = ("[%zero, %zero] : tile<i32>, tile<i32> body(%tile",
            "[%zero, %one] : tile<i32>, tile<i32> body(%tile")  # fmt: skip
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule in ("pipe.race.unlanded", "pipe.race.in_flight")
    assert line_of(found).startswith(("%next = mma_start", "copy_in"))


@pytest.mark.parametrize("options", ALL)
def test_wrong_first_phase_of_the_producer_is_a_deadlock(options: dict[str, Any]) -> None:
    edit = ("[%zero, %one] : tile<i32>, tile<i32> body(%tile",
            "[%zero, %zero] : tile<i32>, tile<i32> body(%tile")  # fmt: skip
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule == "pipe.deadlock"
    graph = [text for text, _ in found.notes]
    assert len(graph) == 6
    full, empty = (line_with("gemm_sm90", f"wait_barrier %{b}") for b in ("full", "empty"))
    assert (
        "producer of block (0, 0, 0) waits for phase 0 of %empty[0] (0 of 4 arrivals); "
        f"who arrives there: consumer 0 (waits at line {full}), consumer 1 (waits at line {full})"
    ) in graph
    assert (
        "consumer 1 of block (1, 0, 0) waits for phase 0 of %full[0] (0 of 1 arrivals); "
        f"who arrives there: producer (waits at line {empty})"
    ) in graph


def _announcing(bytes: int) -> list[Edit]:
    """The arrival in an `if`, where the verifier does not see which copies it counts."""
    always = "%always = cmpi %zero, %one {predicate = less_than, signedness = signed} : tile<i1>"
    arrival = "arrive_barrier %full, %i {bytes = 49152}"
    changed = arrival.replace("49152", str(bytes))
    return [(arrival, f"{always}\nif %always then {{\n{changed}\nyield\n}}")]


@pytest.mark.parametrize("options", ALL)
def test_more_bytes_announced_than_come(options: dict[str, Any]) -> None:
    gemm_sm90().run(_announcing(49152), **options)
    found = violation(gemm_sm90(), _announcing(49168), **options)
    assert found.rule == "pipe.transaction_bytes"
    assert "phase 0 of %full[0], 16 bytes never come" in found.message
    assert line_of(found).startswith("arrive_barrier %full")
    assert any("consumer 0 of block (0, 0, 0) waits for" in text for text, _ in found.notes)


@pytest.mark.parametrize("options", ALL)
def test_fewer_bytes_announced_than_come(options: dict[str, Any]) -> None:
    found = violation(gemm_sm90(), _announcing(32768), **options)
    assert found.rule == "pipe.transaction_bytes"
    assert line_of(found).startswith("arrive_barrier %full")
    found = violation(gemm_sm90(), _announcing(49136), **options)
    assert found.rule == "pipe.transaction_bytes"
    assert "16 bytes more come" in found.message


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("continue %next, %i_next", "continue %acc, %i_next", "pipe.pending_affine"),
        ("mma_wait %sum :", "mma_wait %sum {in_flight = 1} :", "pipe.mma_unfinished"),
    ],
)
def test_write_to_an_accumulator_in_flight(old: str, new: str, rule: str) -> None:
    """Nothing can touch one by its type; the verifier counts its uses."""
    assert violation(gemm_sm90(), [(old, new)]).rule == rule


def test_write_to_a_register_operand_in_flight() -> None:
    wait = "%o_sum, %v_read = mma_wait %o_flying : tile<64x128xf32>, token"
    convert = "%p_out = ftof %p : tile<64x80xbf16>"
    found = violation(
        attention(True, 8, 192, 1), [(convert, ""), (wait, f"{convert}\n        {wait}")]
    )
    assert found.rule == "pipe.operand_in_flight"
    assert line_of(found) == convert


@pytest.mark.parametrize("options", ALL)
def test_a_barrier_in_divergent_code_is_a_deadlock(options: dict[str, Any]) -> None:
    """At this level roles diverge, not lanes: here one replica comes to a step more."""
    end = "    %c_row = addi %row_pair, %h : tile<i32>\n"
    extra = "    if %is_first then {\n      %extra = step : token\n      yield\n    }\n"
    found = violation(gemm_gfx942(), [(end, extra + end)], **options)
    assert found.rule == "pipe.deadlock"
    assert line_of(found) == "%extra = step : token"
    (text, _), *_ = found.notes
    assert text.startswith("half 0 of block (0, 0, 0) waits for step 13 of its block (half 1 ended")


def test_copies_of_a_staggered_half_may_not_come_early() -> None:
    found = violation(gemm_gfx942(), [("%a_share, token=%seen", "%a_share, token=%begun")])
    assert found.rule == "pipe.race.reused"
    assert found.data["role"] == "half 0"
    found = violation(
        gemm_gfx942(),
        [("join_tokens %a_read, %b_read, %landed_second", "join_tokens %landed_second")],
    )
    assert found.rule == "pipe.race.reused"
    found = violation(gemm_gfx942(), [("join_tokens %met, %landed_first", "join_tokens %met")])
    assert found.rule == "pipe.race.unlanded"


def test_a_counter_overwritten_while_others_read_it() -> None:
    case = attention(True, 8, 200, 3)
    found = violation(case, [("token=%next_read {by", "token=%next_ready {by")])
    assert found.rule == "pipe.race.reused"
    assert line_of(found).startswith("%next_written = store_buffer")
    assert "a barrier between consumer" in found.hint


def test_memory_of_an_operand_overwritten_while_products_read_it() -> None:
    edit = ("store_buffer %o_rounded, %q_slot, token=%all_read",
            "store_buffer %o_rounded, %q_slot, token=%q_landed")  # fmt: skip
    found = violation(attention(True, 8, 200, 3), [edit])
    assert found.rule == "pipe.race.in_flight"
    assert line_of(found).startswith("%written = store_buffer")


def test_a_slot_handed_back_before_its_store_has_read_it() -> None:
    """The result leaves through a slot of Q, which the tile after the next fills again."""
    edits = [
        ("          %left = wait_copies {engine = bulk, until = source_free} : token\n", ""),
        ("%q_empty, %stored_which, token=%left", "%q_empty, %stored_which"),
    ]
    found = violation(attention(True, 4, 64, 1), edits, schedule="adversarial")
    assert found.rule == "pipe.race.in_flight"
    assert line_of(found).startswith("copy_in %q_tiles")


@pytest.mark.parametrize("options", ALL)
def test_a_relaxed_wait_shows_no_writes(options: dict[str, Any]) -> None:
    edit = (
        "wait_barrier %full, %i, %phase :",
        "wait_barrier %full, %i, %phase {order = relaxed} :",
    )
    found = violation(gemm_sm90(), [edit], **options)
    assert found.rule == "pipe.race.relaxed"
    assert "known to be done, but not shown" in found.message
    assert line_of(found).startswith("%next = mma_start")


@pytest.mark.parametrize("options", ALL)
def test_a_block_ends_with_its_memory_in_use(options: dict[str, Any]) -> None:
    tail = """    elected body {
      %stored = wait_copies {engine = bulk, until = source_free} : token
      yield
    }
"""
    found = violation(gemm_sm90(), [(tail, "")], **options)
    assert found.rule == "pipe.exit"
    assert line_of(found).startswith("copy_out")


def test_a_cluster_that_does_not_meet_at_the_end() -> None:
    meet = "  cluster_arrive {order = relaxed}\n  %over"
    assert violation(gemm_sm90(), [(meet, "  %over")]).rule == "pipe.cluster_exit"
    late = "  arrive_barrier %empty, %zero, token=%over {everywhere}\n  return"
    found = violation(gemm_sm90(), [("  return", late)])
    assert found.rule in ("pipe.exit", "pipe.arrivals")


def test_overwriting_what_a_product_reads_changes_the_result() -> None:
    """The operands are read when the product happens, not when it is started."""
    edit = ("%read = mma_wait {in_flight = 1}", "%read = mma_wait {in_flight = 3}")

    def is_right(seed: int) -> bool:
        case = gemm_sm90(448)
        case.run([edit], schedule="adversarial", seed=seed, check=False)
        return case.is_right()

    assert not all(map(is_right, range(1, 9)))


def test_several_faults_of_a_kernel_are_named_together() -> None:
    case = gemm_sm90()
    with pytest.raises(ReftileErrors):
        case.run([("bytes = 49152", "bytes = 1"), ("warps = 12", "warps = 16")])
