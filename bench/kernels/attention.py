"""The attention kernels of examples/pipe, and variants of them to measure, from one text.

    python bench/kernels/attention.py                     write the examples
    python bench/kernels/attention.py --variants FOLDER   write variants for
                                                          bench/hopper_pipe.py --variants FOLDER

The examples differ in numbers: elements of a row, consumers, keys of a block, slots. What was tried
and what it brought is in docs/decisions/.
"""

# ruff: noqa: E501 (lines of kernels are as long as they are printed)

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipe"
REGISTERS = {2: (24, 240), 3: (32, 160)}
"""Registers of a producer's and a consumer's thread, by the number of consumers."""


@dataclass(frozen=True)
class Form:
    """The numbers of a kernel.

    depth: elements of a row of Q, K and V. consumers: warpgroups of 64 rows each. block_n: keys of
    a block. stages, q_stages: slots for K and V, and for Q. turns: consumers start their products
    in turn. skips: maxima that grew little are kept, which spares rescaling. reaches: a query may see
    a part of the keys, so that some blocks need a mask.
    """

    depth: int = 128
    consumers: int = 3
    block_n: int = 80
    stages: int = 3
    q_stages: int = 2
    turns: bool = False
    skips: bool = True
    reaches: bool = True


EXAMPLE_FORMS = {
    "attention": (
        Form(),
        "Three consumers of 64 rows; blocks of 80 keys, so that scores, result and probabilities "
        "fit 160 registers.",
    ),
    "attention_full": (
        Form(reaches=False),
        "The kernel of attention_sm90.tile where nothing is hidden: a third less to assemble.",
    ),
    "attention_short": (
        Form(consumers=2, block_n=128, stages=2),
        "Two consumers of 64 rows: for short sequences, where tiles of 192 rows would leave most "
        "of a last wave idle.",
    ),
    "attention_d64": (
        Form(depth=64, block_n=128, stages=4, turns=True),
        "Three consumers of 64 rows, which take turns: one starts its products while the others "
        "do their softmax.",
    ),
}
VARIANTS = {
    "turns": Form(turns=True),
    "2_stages": Form(stages=2),
    "4_stages_1_q": Form(stages=4, q_stages=1),
    "no_skip": Form(skips=False),
    "short_turns": Form(consumers=2, block_n=128, stages=2, turns=True),
    "short_1_q": Form(consumers=2, block_n=128, stages=2, q_stages=1),
    "short_no_skip": Form(consumers=2, block_n=128, stages=2, skips=False),
    "short_144": Form(consumers=2, block_n=144, stages=2),
    "d64_no_turns": Form(depth=64, block_n=128, stages=4),
    "d64_2_stages": Form(depth=64, block_n=128, stages=2, turns=True),
    "d64_1_q": Form(depth=64, block_n=128, stages=2, q_stages=1, turns=True),
    "d64_112": Form(depth=64, block_n=112, stages=4, turns=True),
}


class Text:
    """The text of one kernel, part by part."""

    def __init__(self, name: str, form: Form, comment: str) -> None:
        self.name, self.form, self.comment = name, form, comment
        self.lines: list[str] = []
        depth, n = form.depth, form.block_n
        self.keys = f"buffer<{n}x{depth}xbf16, layout=swizzle128>"
        self.keys_t = f"buffer<{depth}x{n}xbf16, layout=swizzle128.t>"
        self.queries = f"buffer<64x{depth}xbf16, layout=swizzle128>"
        self.scores = f"tile<64x{n}xf32>"
        self.result = f"tile<64x{depth}xf32>"
        self.powers = f"tile<64x{n}xbf16>"
        self.rows, self.sums = "tile<64xf32>", "tile<64x4xf32>"
        self.inner = 5 if form.reaches else 4
        """How many levels in the loop over whole blocks is."""

    def add(self, depth: int, text: str) -> None:
        """Append lines, `depth` levels in."""
        self.lines.append(indent(text.strip("\n"), "  " * depth))

    def __str__(self) -> str:
        self.prologue()
        self.producer()
        self.consumer()
        self.add(1, "return")
        self.add(0, "}")
        return "\n".join(self.lines) + "\n"

    # Parts of several roles

    def decode(self) -> str:
        """From the number of a tile to its head, rows and blocks of keys."""
        text = """
%over = cmpi %tile, %tiles {predicate = greater_than_or_equal, signedness = signed} : tile<i1>
if %over then {
  break
}
// Tiles go through groups of at most 8 heads, the last rows first: these have the most to do.
%group = divi %tile, %group_tiles {signedness = unsigned} : tile<i32>
%group_first = muli %group, %group_tiles : tile<i32>
%within = subi %tile, %group_first : tile<i32>
%head_first = muli %group, %most_together : tile<i32>
%heads_left = subi %heads, %head_first : tile<i32>
%together = mini %heads_left, %most_together {signedness = signed} : tile<i32>
%from_end = divi %within, %together {signedness = unsigned} : tile<i32>
%heads_before = muli %from_end, %together : tile<i32>
%head_within = subi %within, %heads_before : tile<i32>
%head = addi %head_first, %head_within : tile<i32>
%row_up = subi %rows, %from_end : tile<i32>
%row = subi %row_up, %one : tile<i32>
"""
        if not self.form.reaches:
            return text
        return f"""{text.rstrip()}
%row_first = muli %row, %block_m : tile<i32>
%row_end = addi %row_first, %block_m : tile<i32>
%row_reach = addi %row_end, %reach : tile<i32>
%seen_keys = mini %row_reach, %keys {{signedness = signed}} : tile<i32>
%seen = maxi %seen_keys, %one {{signedness = signed}} : tile<i32>
%seen_last = subi %seen, %one : tile<i32>
%first = divi %seen_last, %block_n {{signedness = unsigned}} : tile<i32>
"""

    def reduce(self, result: str, source: str, kind: str, axis: int, op: str, identity: str) -> str:
        """A reduction of one tile."""
        element = "i1" if op == "ori" else "f32"
        return f"""
%{result} = reduce %{source} {{axis = {axis}, identities = [{identity}]}} : {kind} combine(%element: tile<{element}>, %acc: tile<{element}>) {{
  %both = {op} %acc, %element : tile<{element}>
  yield %both
}}
"""

    # The prologue

    def view(self, name: str, heads: str, length: str, rows: int, access: str) -> str:
        """A view, and its tiles."""
        depth = self.form.depth
        kind = f"tensor_view<?x?x{depth}xbf16, strides=[?, {depth}, 1], access={access}>"
        stride = "q_head" if heads == "heads" else "kv_head"
        self.add(
            1,
            f"%{name}_view = make_tensor_view %{name}, [%{heads}, %{length}], [%{stride}] : {kind}",
        )
        return (
            f"%{name}_tiles = make_partition_view %{name}_view : "
            f"partition_view<tile=(1x{rows}x{depth}), {kind}, padding=zero>"
        )

    def prologue(self) -> None:
        """Arguments, views, places and barriers."""
        form = self.form
        n, count = form.block_n, form.consumers
        self.add(0, self.comment)
        pointers = ", ".join(f"%{p}: tile<ptr<bf16>>" for p in "qkvo")
        sizes = ["heads", "kv_heads", "length", "keys"]
        if form.reaches:
            sizes.append("reach")
        numbers = ", ".join(f"%{s}: tile<i32>" for s in sizes)
        self.add(
            0,
            f"pipe kernel @{self.name}({pointers}, {numbers}, %scale: tile<f32>, "
            f"%counter: tile<ptr<i32>>) attributes "
            f'{{target = "sm_90a", warps = {4 * count + 4}}} {{',
        )
        constants = {
            "depth": form.depth,
            "zero": 0,
            "one": 1,
            "block_m": 64 * count,
            "block_n": n,
            "most_together": 8,
            "replicas": count,
            "sixty_four": 64,
        }
        if form.turns:
            constants["last_replica"] = count - 1
        for name, value in constants.items():
            self.add(1, f"%{name} = constant {{value = {value}}} : tile<i32>")
        self.add(1, "%q_head = muli %length, %depth : tile<i32>")
        self.add(1, "%kv_head = muli %keys, %depth : tile<i32>")
        for tiles in (
            self.view("q", "heads", "length", 64, "read_only"),
            self.view("k", "kv_heads", "keys", n, "read_only"),
            self.view("v", "kv_heads", "keys", n, "read_only"),
            self.view("o", "heads", "length", 64, "write_only"),
        ):
            self.add(1, tiles)
        whole = "%first = divi %last_key, %block_n {signedness = unsigned} : tile<i32>"
        whole = "" if form.reaches else f"\n{whole}"
        self.add(
            1,
            f"""
%heads_each = divi %heads, %kv_heads {{signedness = unsigned}} : tile<i32>
%length_up = addi %length, %block_m : tile<i32>
%length_last = subi %length_up, %one : tile<i32>
%rows = divi %length_last, %block_m {{signedness = unsigned}} : tile<i32>
%tiles = muli %rows, %heads : tile<i32>
%last_tile = subi %tiles, %one : tile<i32>
%last_key = subi %keys, %one : tile<i32>{whole}
%group_tiles = muli %rows, %most_together : tile<i32>
%block, %block_y, %block_z = get_tile_block_id : tile<i32>, tile<i32>, tile<i32>
%blocks, %blocks_y, %blocks_z = get_num_tile_blocks : tile<i32>, tile<i32>, tile<i32>
%q_ring = alloc_ring : ring<{count * form.q_stages}, {self.queries}>
%k_ring = alloc_ring : ring<{form.stages}, {self.keys}>
%v_ring = alloc_ring : ring<{form.stages}, {self.keys}>
%q_full = alloc_barrier : barrier<{count * form.q_stages}, arrivals=1>
%q_empty = alloc_barrier : barrier<{count * form.q_stages}, arrivals=1>
%k_full = alloc_barrier : barrier<{form.stages}, arrivals=1>
%k_empty = alloc_barrier : barrier<{form.stages}, arrivals={count}>
%v_full = alloc_barrier : barrier<{form.stages}, arrivals=1>
%v_empty = alloc_barrier : barrier<{form.stages}, arrivals={count}>
""",
        )
        if form.turns:
            self.add(1, f"%turn = alloc_named_barrier : named_barrier<{count}, threads=256>")
        self.add(
            1,
            f"""
%next_ring = alloc_ring : ring<2, buffer<i32>>
%next_full = alloc_barrier : barrier<2, arrivals=1>
// Every thread of the consumers reads the number of the next tile.
%next_empty = alloc_barrier : barrier<2, arrivals={128 * count}>
""",
        )

    # The producer

    def load(self, depth: int, which: str, ring: str, phase: str, block: str, part: str) -> None:
        """Load a block of K or V when its slot is free."""
        size = self.form.block_n * self.form.depth * 2
        self.add(
            depth,
            f"""
%{which}{part}_free = wait_barrier %{which}_empty, {ring}, {phase} : token
arrive_barrier %{which}_full, {ring} {{bytes = {size}}}
%{which}{part}_slot = slot %{which}_ring, {ring} : {self.keys}
copy_in %{which}_tiles, [%kv_head_number, {block}, %zero], %{which}{part}_slot, barrier=%{which}_full, slot={ring}, token=%{which}{part}_free {{engine = bulk}}
""",
        )

    def load_queries(self) -> None:
        """Load the rows of all consumers."""
        self.add(
            4,
            f"""
%q_row = muli %row, %replicas : tile<i32>
%q_first = muli %qs, %replicas : tile<i32>
for %zero, %replicas, %one, [] body(%w: tile<i32>) {{
  %which = addi %q_first, %w : tile<i32>
  %q_free = wait_barrier %q_empty, %which, %q_phase : token
  arrive_barrier %q_full, %which {{bytes = {64 * self.form.depth * 2}}}
  %q_slot = slot %q_ring, %which : {self.queries}
  %q_index = addi %q_row, %w : tile<i32>
  copy_in %q_tiles, [%head, %q_index, %zero], %q_slot, barrier=%q_full, slot=%which, token=%q_free {{engine = bulk}}
  continue
}}
%qs_next, %q_phase_next = advance %qs, %q_phase {{stages = {self.form.q_stages}}} : tile<i32>, tile<i32>
""",
        )

    def producer(self) -> None:
        """One thread loads, and takes the numbers of tiles."""
        form = self.form
        registers, _ = REGISTERS[form.consumers]
        self.add(1, f'role {{label = "producer", warps = 4, registers = {registers}}} body {{')
        self.add(2, "elected body {")
        carried = ("tile", "i", "phase", "qs", "q_phase", "s", "s_phase")
        arguments = ", ".join(f"%{c}: tile<i32>" for c in carried)
        self.add(3, f"loop %block, %zero, %one, %zero, %one, %zero, %one body({arguments}) {{")
        self.add(4, self.decode())
        self.add(4, "%kv_head_number = divi %head, %heads_each {signedness = unsigned} : tile<i32>")
        if form.q_stages == 2:
            self.load_queries()
        else:
            self.add(4, "// The first K and V before Q: their slots are free before that of Q.")
        self.load(4, "k", "%i", "%phase", "%first", "")
        self.load(4, "v", "%i", "%phase", "%first", "")
        self.add(
            4,
            f"%i_first, %phase_first = advance %i, %phase {{stages = {form.stages}}} : "
            "tile<i32>, tile<i32>",
        )
        if form.q_stages == 1:
            self.load_queries()
        self.add(
            4,
            """
// Take the next tile while this one is loaded; the counter is back at zero when all are taken.
%taken, %taken_token = atomic_inc_wrap_tko %counter, %last_tile {ordering = relaxed, scope = device} : tile<i32>, token
%tile_next = addi %taken, %blocks : tile<i32>
%next_free = wait_barrier %next_empty, %s, %s_phase : token
%next_slot = slot %next_ring, %s : buffer<i32>
%next_written = store_buffer %tile_next, %next_slot, token=%next_free : token
arrive_barrier %next_full, %s, token=%next_written
%s_next, %s_phase_next = advance %s, %s_phase {stages = 2} : tile<i32>, tile<i32>
%i_next, %phase_next = for %zero, %first, %one, [%i_first, %phase_first] : tile<i32>, tile<i32> body(%step: tile<i32>, %ring: tile<i32>, %ring_phase: tile<i32>) {
  %before = subi %first, %step : tile<i32>
  %j = subi %before, %one : tile<i32>
""",
        )
        self.load(5, "k", "%ring", "%ring_phase", "%j", "_next")
        self.load(5, "v", "%ring", "%ring_phase", "%j", "_next")
        self.add(
            4,
            f"""
  %i_after, %phase_after = advance %ring, %ring_phase {{stages = {form.stages}}} : tile<i32>, tile<i32>
  continue %i_after, %phase_after
}}
continue %tile_next, %i_next, %phase_next, %qs_next, %q_phase_next, %s_next, %s_phase_next
""",
        )
        for depth in (3, 2):
            self.add(depth, "}\nyield")
        self.add(1, "}")

    # The consumers

    def consumer(self) -> None:
        """Each multiplies 64 rows of Q by all keys that they see, from the last to the first."""
        form = self.form
        _, registers = REGISTERS[form.consumers]
        self.add(
            1,
            f'role {{label = "consumer", warps = 4, replicas = {form.consumers}, '
            f"registers = {registers}}} body(%w: tile<i32>) {{",
        )
        self.constants()
        carried = ["tile", "ki0", "kp0", "vi0", "vp0", "qs", "q_phase", "s", "s_phase"]
        begin = ["%block", *["%zero"] * 8]
        if form.q_stages == 2:
            carried.append("stored_from")
            begin.append("%none")
        arguments = ", ".join(f"%{c}: tile<i32>" for c in carried)
        self.add(2, f"loop {', '.join(begin)} body({arguments}) {{")
        self.add(3, self.decode())
        self.limits()
        self.queries_landed()
        if form.reaches:
            self.masked_loop()
        else:
            self.first_block()
            self.loop(
                "%zero, %first", "%zero_out, %p_first, %m_first, %l_first, %ki1, %kp1, %vi0, %vp0"
            )
            self.whole_body()
            self.last_product()
        self.finish()
        self.add(2, "}")
        self.add(
            2,
            """
elected body {
  %stored = wait_copies {engine = bulk, until = source_free} : token
  yield
}
yield
""",
        )
        self.add(1, "}")

    def constants(self) -> None:
        """What does not change from tile to tile, and the first turn."""
        n = self.form.block_n
        self.add(
            2,
            f"""
%scale_one = reshape %scale : tile<1xf32>
%scale_rows = broadcast %scale_one : {self.rows}
%scale_square = reshape %scale : tile<1x1xf32>
%scale_tile = broadcast %scale_square : {self.scores}
%zero_rows = constant {{value = 0.0}} : {self.rows}
%zero_sums = constant {{value = 0.0}} : {self.sums}
%zero_out = constant {{value = 0.0}} : {self.result}
%ones_rows = constant {{value = 1.0}} : {self.rows}
%threshold = constant {{value = 8.0}} : {self.rows}
%minus_infinity = constant {{value = -inf}} : {self.scores}
%column_offsets = iota : tile<{n}xi32>
""",
        )
        if self.form.reaches:
            self.add(
                2,
                f"""
%lowest = constant {{value = -inf}} : {self.rows}
%row_offsets = iota : tile<64xi32>
%last_key_one = reshape %last_key : tile<1xi32>
%last_key_rows = broadcast %last_key_one : tile<64xi32>
""",
            )
        if self.form.turns:
            self.add(
                2,
                """
%w_up = addi %w, %one : tile<i32>
%is_last = cmpi %w, %last_replica {predicate = equal, signedness = signed} : tile<i1>
%next_w = select %is_last, %zero, %w_up : tile<i32>
// The first turn is handed out by the last.
if %is_last then {
  arrive_named %turn, %zero
  yield
}
""",
            )
        if self.form.q_stages == 2:
            self.add(2, "%none = constant {value = -1} : tile<i32>")

    def mask(self, depth: int, part: str, block: str, scores: str) -> None:
        """Hide the keys that a row does not see."""
        n = self.form.block_n
        self.add(
            depth,
            f"""
%{part}column_first = muli {block}, %block_n : tile<i32>
%{part}column_scalar = reshape %{part}column_first : tile<1xi32>
%{part}column_base = broadcast %{part}column_scalar : tile<{n}xi32>
%{part}columns = addi %{part}column_base, %column_offsets : tile<{n}xi32>
%{part}columns_row = reshape %{part}columns : tile<1x{n}xi32>
%{part}column_tile = broadcast %{part}columns_row : tile<64x{n}xi32>
%{part}hidden = cmpi %{part}column_tile, %limit_tile {{predicate = greater_than, signedness = signed}} : tile<64x{n}xi1>
%{part}shown = select %{part}hidden, %minus_infinity, {scores} : {self.scores}
""",
        )

    def exponentials(self, depth: int, part: str, shown: str, highest: str) -> None:
        """Powers of two of scaled scores less the maximum, and four sums of each row."""
        n = self.form.block_n
        self.add(
            depth,
            f"""
%{part}shift_up = mulf {highest}, %scale_rows : {self.rows}
%{part}shift = negf %{part}shift_up : {self.rows}
%{part}shifts_column = reshape %{part}shift : tile<64x1xf32>
%{part}shifts = broadcast %{part}shifts_column : {self.scores}
%{part}scaled = fma {shown}, %scale_tile, %{part}shifts : {self.scores}
%{part}p = exp2 %{part}scaled {{flush_to_zero}} : {self.scores}
%{part}sums_parts = reshape %{part}p : tile<64x{n // 8}x4x2xf32>
""",
        )
        pairs = f"tile<64x{n // 8}x4xf32>"
        self.add(
            depth,
            self.reduce(f"{part}sums_pairs", f"{part}sums_parts", pairs, 3, "addf", "0.0"),
        )
        self.add(
            depth, self.reduce(f"{part}sums", f"{part}sums_pairs", self.sums, 1, "addf", "0.0")
        )

    def limits(self) -> None:
        """The last key that each row sees."""
        n = self.form.block_n
        if not self.form.reaches:
            self.add(
                3,
                f"""
%limit_square = reshape %last_key : tile<1x1xi32>
%limit_tile = broadcast %limit_square : tile<64x{n}xi32>
""",
            )
            return
        self.add(
            3,
            f"""
// A row sees the keys up to its own number and `reach`, and not past the last.
%w_rows = muli %w, %sixty_four : tile<i32>
%my_first = addi %row_first, %w_rows : tile<i32>
%my_reach = addi %my_first, %reach : tile<i32>
%my_reach_one = reshape %my_reach : tile<1xi32>
%my_reach_rows = broadcast %my_reach_one : tile<64xi32>
%reach_rows = addi %my_reach_rows, %row_offsets : tile<64xi32>
%limit_rows = mini %reach_rows, %last_key_rows {{signedness = signed}} : tile<64xi32>
%limit_column = reshape %limit_rows : tile<64x1xi32>
%limit_tile = broadcast %limit_column : tile<64x{n}xi32>
""",
        )

    def queries_landed(self) -> None:
        """Wait for Q, and know whose result left through the slot before."""
        self.add(
            3,
            f"""
%q_first = muli %qs, %replicas : tile<i32>
%q_which = addi %q_first, %w : tile<i32>
%q_landed = wait_barrier %q_full, %q_which, %q_phase : token
%q_slot = slot %q_ring, %q_which : {self.queries}
""",
        )
        if self.form.q_stages == 2:
            self.add(
                3,
                """
%has_stored = cmpi %stored_from, %zero {predicate = greater_than_or_equal, signedness = signed} : tile<i1>
%stored_first = muli %stored_from, %replicas : tile<i32>
%stored_which = addi %stored_first, %w : tile<i32>
""",
            )

    def first_scores(self, depth: int, ring: str, phase: str, leaves: str) -> None:
        """Multiply Q by a block of keys while no product with V is in flight.

        leaves: whether the slot of the result of the tile before is to be handed back meanwhile.
        """
        form = self.form
        n = form.block_n
        self.add(depth, f"%first_k_landed = wait_barrier %k_full, {ring}, {phase} : token")
        if form.turns and form.reaches:
            self.add(depth, "%first_mine = sync_named %turn, %w : token")
        self.add(
            depth,
            f"""
%first_k_slot = slot %k_ring, {ring} : {self.keys}
%first_k_t = transpose_buffer %first_k_slot : {self.keys_t}
%first_qk_ready = join_tokens %q_landed, %first_k_landed : token
%first_s_flying = mma_start %q_slot, %first_k_t, token=%first_qk_ready : pending<64x{n}xf32>
""",
        )
        if form.turns and form.reaches:
            self.add(depth, "arrive_named %turn, %next_w")
        if form.q_stages == 2:
            self.add(
                depth,
                f"""
// The result of the tile before has left by now: Q of the next but one may come in its place.
elected body {{
  if {leaves} then {{
    %left = wait_copies {{engine = bulk, until = source_free}} : token
    arrive_barrier %q_empty, %stored_which, token=%left
    yield
  }}
  yield
}}
""",
            )
        self.add(
            depth,
            f"""
%first_scores, %first_k_read = mma_wait %first_s_flying : {self.scores}, token
arrive_barrier %k_empty, {ring}, token=%first_k_read
%ki1, %kp1 = advance {ring}, {phase} {{stages = {form.stages}}} : tile<i32>, tile<i32>
""",
        )

    def first_block(self) -> None:
        """The last block of keys, where nothing but the keys' end hides any."""
        self.first_scores(3, "%ki0", "%kp0", "%has_stored")
        self.mask(3, "first_", "%first", "%first_scores")
        self.add(3, self.reduce("m_first", "first_shown", self.rows, 1, "maxf", "-inf"))
        self.exponentials(3, "first_", "%first_shown", "%m_first")
        self.add(
            3,
            f"""
%l_first = addf %zero_sums, %first_sums : {self.sums}
%p_first = ftof %first_p : {self.powers}
""",
        )

    def masked_loop(self) -> None:
        """Masked blocks one by one; the last of them leads the blocks that need no mask.

        The product with V stands once for all: after a masked block, and after the last whole one.
        """
        self.count_masked()
        state = {
            "o_old": self.result,
            "m_old": self.rows,
            "l_old": self.sums,
            **dict.fromkeys(("ki_old", "kp_old", "vi_old", "vp_old"), "tile<i32>"),
            "read_old": "token",
        }
        arguments = ", ".join(f"%{n}: {t}" for n, t in state.items())
        self.add(
            3,
            f"%o_all, %m_all, %l_all, %ki_all, %kp_all, %vi_all, %vp_all, %all_read = "
            "for %zero, %blocks_masked, %one, "
            "[%zero_out, %lowest, %zero_sums, %ki0, %kp0, %vi0, %vp0, %q_landed] : "
            f"{', '.join(state.values())} body(%masked: tile<i32>, {arguments}) {{",
        )
        if self.form.q_stages == 2:
            self.add(
                4,
                """
%is_first = cmpi %masked, %zero {predicate = equal, signedness = signed} : tile<i1>
%leaves = andi %is_first, %has_stored : tile<i1>
""",
            )
        self.first_scores(4, "%ki_old", "%kp_old", "%leaves")
        self.add(4, "%j = subi %first, %masked : tile<i32>")
        self.mask(4, "first_", "%j", "%first_scores")
        self.add(4, self.reduce("first_high", "first_shown", self.rows, 1, "maxf", "-inf"))
        self.add(
            4,
            f"""
%m_first = maxf %first_high, %m_old : {self.rows}
%unseen = cmpf %m_first, %lowest {{predicate = equal}} : tile<64xi1>
%m_used = select %unseen, %zero_rows, %m_first : {self.rows}
""",
        )
        self.shrink("first_", "%m_old", "%m_used", "%l_old", "l_shrunk")
        self.exponentials(4, "first_", "%first_shown", "%m_used")
        self.add(
            4,
            f"""
%l_first = addf %l_shrunk, %first_sums : {self.sums}
%p_first = ftof %first_p : {self.powers}
""",
        )
        self.rescale(4, "first_", "%o_old", "o_shrunk")
        self.add(
            4,
            """
%is_last_masked = cmpi %masked, %last_masked {predicate = equal, signedness = signed} : tile<i1>
%whole_now = select %is_last_masked, %unmasked, %zero : tile<i32>
""",
        )
        self.loop(
            "%zero, %whole_now",
            "%o_shrunk, %p_first, %m_first, %l_first, %ki1, %kp1, %vi_old, %vp_old",
        )
        self.whole_body()
        self.last_product()
        self.add(4, "continue %o_last, %m_b, %l_b, %ki_b, %kp_b, %vi_last, %vp_last, %last_read")
        self.add(3, "}")

    def count_masked(self) -> None:
        """How many blocks need a mask."""
        self.add(
            3,
            """
// Blocks that reach past what this role's first row sees are masked, and so is the last; they come first,
// the others need no mask.
%my_end_up = addi %my_reach, %one : tile<i32>
%my_end_keys = mini %my_end_up, %keys {signedness = signed} : tile<i32>
%my_end = maxi %my_end_keys, %zero {signedness = signed} : tile<i32>
%whole = divi %my_end, %block_n {signedness = unsigned} : tile<i32>
%unmasked = mini %whole, %first {signedness = signed} : tile<i32>
%last_masked = subi %first, %unmasked : tile<i32>
%blocks_masked = addi %last_masked, %one : tile<i32>
""",
        )

    def loop(self, bounds: str, begin: str) -> None:
        """The head of the loop over whole blocks."""
        names = ("o", "p", "m", "l", "ki", "kp", "vi", "vp")
        results = ", ".join(f"%{n}_b" for n in names)
        state = {
            "o_acc": self.result,
            "p_in": self.powers,
            "m_in": self.rows,
            "l_in": self.sums,
            **dict.fromkeys(("ki", "k_phase", "vi", "v_phase"), "tile<i32>"),
        }
        arguments = ", ".join(f"%{n}: {t}" for n, t in state.items())
        self.add(
            self.inner - 1,
            f"{results} = for {bounds}, %one, [{begin}] : {', '.join(state.values())} "
            f"body(%step: tile<i32>, {arguments}) {{",
        )

    def products(self) -> None:
        """Start Q K^T of this block and P V of the one before; wait for the first."""
        n, depth = self.form.block_n, self.form.depth
        self.add(self.inner, "%k_landed = wait_barrier %k_full, %ki, %k_phase : token")
        if self.form.turns:
            self.add(self.inner, "%mine = sync_named %turn, %w : token")
        self.add(
            self.inner,
            f"""
%k_slot = slot %k_ring, %ki : {self.keys}
%k_t = transpose_buffer %k_slot : {self.keys_t}
%qk_ready = join_tokens %q_landed, %k_landed : token
%s_flying = mma_start %q_slot, %k_t, token=%qk_ready : pending<64x{n}xf32>
%v_landed = wait_barrier %v_full, %vi, %v_phase : token
%v_slot = slot %v_ring, %vi : {self.keys}
%o_flying = mma_start %p_in, %v_slot, acc=%o_acc, token=%v_landed : pending<64x{depth}xf32>
""",
        )
        if self.form.turns:
            self.add(self.inner, "arrive_named %turn, %next_w")
        self.add(
            self.inner,
            f"""
%scores, %k_read = mma_wait %s_flying {{in_flight = 1}} : {self.scores}, token
arrive_barrier %k_empty, %ki, token=%k_read
// The softmax runs while the product of the block before is in flight.
""",
        )

    def shrink(self, part: str, before: str, used: str, sums: str, result: str) -> None:
        """The factor by which a new maximum shrinks sums and result, and the sums less."""
        self.add(
            self.inner if not part else 4,
            f"""
%{part}drop = subf {before}, {used} : {self.rows}
%{part}drop_scaled = mulf %{part}drop, %scale_rows : {self.rows}
%{part}alpha = exp2 %{part}drop_scaled {{flush_to_zero}} : {self.rows}
%{part}decay_column = reshape %{part}alpha : tile<64x1xf32>
%{part}decay = broadcast %{part}decay_column : {self.sums}
%{result} = mulf {sums}, %{part}decay : {self.sums}
""",
        )

    def end_of_block(self) -> None:
        """Take the result of P V, and round the powers for the next."""
        self.add(
            self.inner,
            f"""
%l_new = addf %l_kept, %sums : {self.sums}
%o_sum, %v_read = mma_wait %o_flying : {self.result}, token
arrive_barrier %v_empty, %vi, token=%v_read
%p_out = ftof %p : {self.powers}
""",
        )

    def rescale(self, depth: int, part: str, result: str, shrunk: str) -> None:
        """The result times the factor."""
        self.add(
            depth,
            f"""
%{part}factors_column = reshape %{part}alpha : tile<64x1xf32>
%{part}factors = broadcast %{part}factors_column : {self.result}
%{shrunk} = mulf {result}, %{part}factors : {self.result}
""",
        )

    def end_of_loop(self) -> None:
        """On to the next block."""
        stages = self.form.stages
        self.add(
            self.inner,
            f"""
%ki_next, %k_phase_next = advance %ki, %k_phase {{stages = {stages}}} : tile<i32>, tile<i32>
%vi_next, %v_phase_next = advance %vi, %v_phase {{stages = {stages}}} : tile<i32>, tile<i32>
continue %o_next, %p_out, %m_new, %l_new, %ki_next, %k_phase_next, %vi_next, %v_phase_next
""",
        )
        self.add(self.inner - 1, "}")

    def whole_body(self) -> None:
        """A block that every row sees."""
        self.products()
        self.add(self.inner, self.reduce("high", "scores", self.rows, 1, "maxf", "-inf"))
        if self.form.skips:
            self.kept_maximum()
        else:
            self.add(self.inner, f"%m_new = maxf %high, %m_in : {self.rows}")
            self.shrink("", "%m_in", "%m_new", "%l_in", "l_kept")
        self.exponentials(self.inner, "", "%scores", "%m_new")
        self.end_of_block()
        if self.form.skips:
            self.add(self.inner, f"%o_next = if_rows %moves, [%o_sum] : {self.result} then {{")
            self.rescale(self.inner + 1, "", "%o_sum", "o_less")
            self.add(self.inner + 1, "yield %o_less")
            self.add(self.inner, "}")
        else:
            self.rescale(self.inner, "", "%o_sum", "o_next")
        self.end_of_loop()

    def kept_maximum(self) -> None:
        """A new maximum only in warps where one grew much."""
        self.add(
            self.inner,
            f"""
// A maximum that grew by less than 8 stays: no factor then exceeds 2^8. Warps decide, each for its 16 rows.
%growth = subf %high, %m_in : {self.rows}
%growth_scaled = mulf %growth, %scale_rows : {self.rows}
%grown = cmpf %growth_scaled, %threshold {{predicate = greater_than}} : tile<64xi1>
%grown_warps = reshape %grown : tile<4x16xi1>
""",
        )
        self.add(self.inner, self.reduce("moves", "grown_warps", "tile<4xi1>", 1, "ori", "0"))
        kinds = f"{self.rows}, {self.sums}, {self.rows}"
        self.add(
            self.inner,
            f"""
%m_new, %l_kept, %alpha = if_rows %moves, [%m_in, %l_in, %ones_rows] : {kinds} then {{
  %higher = maxf %high, %m_in : {self.rows}
  %drop = subf %m_in, %higher : {self.rows}
  %drop_scaled = mulf %drop, %scale_rows : {self.rows}
  %factor = exp2 %drop_scaled {{flush_to_zero}} : {self.rows}
  %decay_column = reshape %factor : tile<64x1xf32>
  %decay = broadcast %decay_column : {self.sums}
  %l_less = mulf %l_in, %decay : {self.sums}
  yield %higher, %l_less, %factor
}}
""",
        )

    def last_product(self) -> None:
        """The product with V that is left after a loop over whole blocks."""
        form = self.form
        depth = self.inner - 1
        self.add(
            depth,
            f"""
%last_v_landed = wait_barrier %v_full, %vi_b, %vp_b : token
%last_v_slot = slot %v_ring, %vi_b : {self.keys}
%last_o_flying = mma_start %p_b, %last_v_slot, acc=%o_b, token=%last_v_landed : pending<64x{form.depth}xf32>
%o_last, %last_read = mma_wait %last_o_flying : {self.result}, token
arrive_barrier %v_empty, %vi_b, token=%last_read
%vi_last, %vp_last = advance %vi_b, %vp_b {{stages = {form.stages}}} : tile<i32>, tile<i32>
""",
        )

    def finish(self) -> None:
        """The division by the sums, the store, the next tile."""
        form = self.form
        depth = form.depth
        o, sums, read = "%o_last", "%l_b", "%last_read"
        rings = "%ki_b, %kp_b, %vi_last, %vp_last"
        if form.reaches:
            o, sums, read = "%o_all", "%l_all", "%all_read"
            rings = "%ki_all, %kp_all, %vi_all, %vp_all"
        self.add(3, self.reduce("l_sum", sums[1:], self.rows, 1, "addf", "0.0"))
        total = "%l_sum"
        if form.reaches:
            total = "%l_used"
            self.add(
                3,
                f"""
// A row that sees no key is zero.
%is_empty = cmpf %l_sum, %zero_rows {{predicate = equal}} : tile<64xi1>
%l_used = select %is_empty, %ones_rows, %l_sum : {self.rows}
""",
            )
        self.add(
            3,
            f"""
%l_inverse = rcp {total} {{rounding = approx, flush_to_zero}} : {self.rows}
%inverse_column = reshape %l_inverse : tile<64x1xf32>
%o_factors = broadcast %inverse_column : {self.result}
%o_normal = mulf {o}, %o_factors : {self.result}
%o_rounded = ftof %o_normal : tile<64x{depth}xbf16>
// The result leaves through the memory of Q, whose reads are over.
%written = store_buffer %o_rounded, %q_slot, token={read} : token
%fenced = fence_proxy %written : token
%o_first = muli %row, %replicas : tile<i32>
%o_index = addi %o_first, %w : tile<i32>
elected body {{
  copy_out %q_slot, %o_tiles, [%head, %o_index, %zero], token=%fenced
  commit_copies {{engine = bulk}}
""",
        )
        if form.q_stages == 1:
            self.add(
                4,
                """
%left = wait_copies {engine = bulk, until = source_free} : token
arrive_barrier %q_empty, %q_which, token=%left
""",
            )
        carried = "%qs_next, %q_phase_next, %s_next, %s_phase_next"
        if form.q_stages == 2:
            carried += ", %qs"
        self.add(
            3,
            f"""
  yield
}}
%qs_next, %q_phase_next = advance %qs, %q_phase {{stages = {form.q_stages}}} : tile<i32>, tile<i32>
%next_ready = wait_barrier %next_full, %s, %s_phase : token
%next_slot = slot %next_ring, %s : buffer<i32>
%tile_next, %next_read = load_buffer %next_slot, token=%next_ready : tile<i32>, token
arrive_barrier %next_empty, %s, token=%next_read {{by = threads}}
%s_next, %s_phase_next = advance %s, %s_phase {{stages = 2}} : tile<i32>, tile<i32>
continue %tile_next, {rings}, {carried}
""",
        )


def comment(form: Form, what: str) -> str:
    """What stands above a kernel."""
    depth = form.depth
    sees = """ Query i sees keys 0 to i + reach:
// all of them with reach = keys, 0 or keys - length make it causal; a query that sees no key gives zero."""
    return f"""
// Attention in bf16: O = softmax(scale Q K^T) V for Q and O of [heads, length, {depth}], K and V of [kv_heads, keys, {depth}].
// kv_heads divides heads, and neighbours share. Any length and any keys from 1 on.{sees if form.reaches else ""}
// `scale` is positive and includes log2(e); `counter` is zero before and after the launch.
// {what}
// Row maxima are kept while they are nearly right, which spares most rescaling. Tiles are taken from a counter,
// those with most to do first. Q has two slots: the next one lands while the result leaves through the other.
"""


def example(name: str) -> str:
    """The text of an example."""
    form, what = EXAMPLE_FORMS[name]
    return str(Text(name, form, comment(form, what)))


def main() -> int:
    """Write the examples, or the variants."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--variants", type=Path)
    options = parser.parse_args()
    if options.variants is None:
        for name in EXAMPLE_FORMS:
            (EXAMPLES / f"{name}_sm90.tile").write_text(example(name), encoding="utf-8")
        return 0
    options.variants.mkdir(parents=True, exist_ok=True)
    for name, form in VARIANTS.items():
        text = str(Text("attention", form, "// A variant."))
        (options.variants / f"{name}.tile").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
