"""Random small `pipe` kernels, by seed: about half of them order their accesses as they must."""

from __future__ import annotations

from random import Random

BUFFER = "buffer<64x64xbf16, layout=swizzle128>"
TILE = "tile<64x64xbf16>"
BYTES = 8192
ROWS = "tensor_view<512x64xbf16, strides=[64, 1]>"


class _Maker:
    """Writes one kernel. flaw: how often something that order needs is left out."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"pipe {seed}")
        self.flaw = self.random.choice((0.0, 0.0, 0.05, 0.15, 0.3))
        self.count = 0
        self.uses: set[str] = set()

    def name(self, what: str) -> str:
        self.count += 1
        return f"%{what}{self.count}"

    def forgets(self) -> bool:
        return self.random.random() < self.flaw

    def view(self, which: str) -> str:
        self.uses.add(which)
        return f"%{which}_tiles"

    def token(self, tokens: list[str], lines: list[str]) -> str:
        """The operand that waits for these tokens, some of them forgotten."""
        kept = [t for t in tokens if not self.forgets()]
        if not kept:
            return ""
        if len(kept) == 1:
            return f", token={kept[0]}"
        name = self.name("joined")
        lines.append(f"{name} = join_tokens {', '.join(kept)} : token")
        return f", token={name}"

    # Single steps; each gives the token of what it did

    def store(self, buffer: str, tokens: list[str], lines: list[str]) -> str:
        tile, done = self.name("x"), self.name("stored")
        lines.append(f"{tile} = constant {{value = {self.count}.0}} : {TILE}")
        token = self.token(tokens, lines)
        lines.append(f"{done} = store_buffer {tile}, {buffer}{token} : token")
        return done

    def fence(self, tokens: list[str], lines: list[str]) -> list[str]:
        if self.forgets():
            return tokens
        token = self.token(tokens, lines).removeprefix(", token=")
        if not token:
            return []
        done = self.name("fenced")
        lines.append(f"{done} = fence_proxy {token} : token")
        return [done]

    def load(self, buffer: str, tokens: list[str], lines: list[str]) -> str:
        token, tile, done = self.token(tokens, lines), self.name("y"), self.name("loaded")
        lines.append(f"{tile}, {done} = load_buffer {buffer}{token} : {TILE}, token")
        return done

    def product(self, buffer: str, tokens: list[str], lines: list[str]) -> str:
        token, p = self.token(tokens, lines), self.name("p")
        lines.append(f"{p} = mma_start {buffer}, {buffer}{token} : pending<64x64xf32>")
        tile, done = self.name("c"), self.name("multiplied")
        lines.append(f"{tile}, {done} = mma_wait {p} : tile<64x64xf32>, token")
        return done

    def out(self, buffer: str, tokens: list[str], lines: list[str]) -> str:
        token, done, inner = self.token(tokens, lines), self.name("sent"), self.name("left")
        until = self.random.choice(("", ", until = source_free"))
        at = f"[%n{self.random.randrange(3)}, %n0]"
        lines += [
            f"{done} = elected : token body {{",
            f"copy_out {buffer}, {self.view('out')}, {at}{token}",
            "commit_copies {engine = bulk}",
            f"{inner} = wait_copies {{engine = bulk{until}}} : token",
            f"yield {inner}",
            "}",
        ]
        return done

    def into(self, buffer: str, tokens: list[str], lines: list[str]) -> str:
        token, done = self.token(tokens, lines), self.name("landed")
        at = f"[%n{self.random.randrange(3)}, %n0]"
        lines += [
            f"copy_in {self.view('in')}, {at}, {buffer}{token} {{engine = thread}}",
            "commit_copies {engine = thread}",
            f"{done} = wait_copies {{engine = thread}} : token",
        ]
        return done

    # One role

    def alone(self) -> str:
        buffers = ["%a", "%b"][: self.random.choice((1, 1, 2))]
        last: dict[str, list[str]] = {b: [] for b in buffers}
        generic: dict[str, list[str]] = {b: [] for b in buffers}
        lines = [f"{b} = alloc_buffer : {BUFFER}" for b in buffers]
        for b in buffers:
            last[b] = [self.store(b, [], lines)]
            generic[b] = list(last[b])
        for _ in range(self.random.randint(2, 4)):
            b = self.random.choice(buffers)
            what = self.random.choice(("store", "load", "load", "product", "out", "into"))
            tokens = list(last[b])
            if what in ("product", "out") and generic[b]:
                fenced = self.fence(generic[b], lines)
                tokens, generic[b] = list(dict.fromkeys(tokens + fenced)), []
            done = getattr(self, what)(b, tokens, lines)
            writes = what in ("store", "into")
            last[b] = [done] if writes else [*last[b], done]
            generic[b] = [done] if writes else generic[b]
            if what == "out" and not self.forgets():
                # Two copies out may go to one place.
                last = {other: list(dict.fromkeys([*t, done])) for other, t in last.items()}
        return self.kernel("\n".join(lines), 4)

    # Two or three roles around a ring

    def around_a_ring(self) -> str:
        stages = self.random.choice((1, 1, 2))
        rounds = stages + 1
        fill = self.random.choice(("bulk", "bulk", "store", "store", "into"))
        drains = [self.random.choice(("load", "load", "product", "out"))]
        if self.random.random() < 0.2:
            # Two readers see the states of a barrier in many ways: one round is enough to explore.
            drains.append("load")
            rounds = stages
        by = [self.random.choice(("elected", "threads", "warps")) for _ in range(2)]
        full_count = 1 if fill == "bulk" else {"elected": 1, "threads": 128, "warps": 4}[by[0]]
        empty_count = len(drains) * {"elected": 1, "threads": 128, "warps": 4}[by[1]]
        head = [
            f"%ring = alloc_ring : ring<{stages}, {BUFFER}>",
            f"%full = alloc_barrier : barrier<{stages}, arrivals={full_count}>",
            f"%empty = alloc_barrier : barrier<{stages}, arrivals={empty_count}>",
        ]
        needs_fence = fill != "bulk" and any(d in ("product", "out") for d in drains)
        roles = [self.drain(d, by[1], stages, rounds) for d in drains]
        roles.append(self.fill(fill, by[0], needs_fence, stages, rounds))
        return self.kernel("\n".join([*head, *roles]), 4 * len(roles))

    def loop(self, first: int, stages: int, rounds: int, lines: list[str]) -> list[str]:
        end = self.name("end")
        step = self.name("step")
        return [
            f"{end}, {step} = for %n0, %n{rounds}, %n1, [%n0, %n{first}] : tile<i32>, tile<i32> "
            "body(%i: tile<i32>, %s: tile<i32>, %p: tile<i32>) {",
            f"%slot = slot %ring, %s : {BUFFER}",
            *lines,
            f"%s_next, %p_next = advance %s, %p {{stages = {stages}}} : tile<i32>, tile<i32>",
            "continue %s_next, %p_next",
            "}",
        ]

    def arrive(self, barrier: str, by: str, tokens: list[str], lines: list[str]) -> None:
        token = self.token(tokens, lines)
        order = ", order = relaxed" if self.forgets() else ""
        lines.append(f"arrive_barrier {barrier}, %s{token} {{by = {by}{order}}}")

    def drain(self, what: str, by: str, stages: int, rounds: int) -> str:
        lines = ["%ready = wait_barrier %full, %s, %p : token"]
        done = getattr(self, what)("%slot", ["%ready"], lines)
        self.arrive("%empty", by, [done], lines)
        body = self.loop(0, stages, rounds, lines)
        label = self.name("reader")[1:]
        return "\n".join([f'role {{label = "{label}", warps = 4}} body {{', *body, "yield", "}"])

    def fill(self, what: str, by: str, fenced: bool, stages: int, rounds: int) -> str:
        lines = ["%free = wait_barrier %empty, %s, %p : token"]
        if what == "bulk":
            token = self.token(["%free"], lines)
            lines += [
                f"arrive_barrier %full, %s {{bytes = {BYTES}}}",
                f"copy_in {self.view('in')}, [%i, %n0], %slot, barrier=%full, slot=%s{token} "
                "{engine = bulk}",
            ]
            body = ["elected body {", *self.loop(1, stages, rounds, lines), "yield", "}"]
        else:
            tokens = [getattr(self, what)("%slot", ["%free"], lines)]
            if fenced:
                tokens = list(dict.fromkeys([*tokens, *self.fence(tokens, lines)]))
            self.arrive("%full", by, tokens, lines)
            body = self.loop(1, stages, rounds, lines)
        return "\n".join(['role {label = "filler", warps = 4} body {', *body, "yield", "}"])

    # Two roles that take turns at named barriers

    def in_turns(self) -> str:
        turns = self.random.randint(1, 3)
        lines: list[list[str]] = [[], []]
        head = [f"%b = alloc_buffer : {BUFFER}"]
        last: list[str] = []
        for turn in range(turns):
            barrier = f"%turn{turn}"
            head.append(f"{barrier} = alloc_named_barrier : named_barrier<1, threads=256>")
            mine, other = lines[turn % 2], lines[1 - turn % 2]
            if self.random.random() < 0.4 and last:
                last.append(self.load("%b", last, mine))
            if self.random.random() < 0.8 or not last:
                last = [self.store("%b", last, mine)]
            token, met = self.token(last, mine), self.name("met")
            if self.random.random() < 0.5:
                mine.append(f"arrive_named {barrier}, %n0{token}")
            else:
                mine.append(f"{self.name('both')} = sync_named {barrier}, %n0{token} : token")
            other.append(f"{met} = sync_named {barrier}, %n0 : token")
            last = [met]
        getattr(self, self.random.choice(("load", "store")))("%b", last, lines[turns % 2])
        roles = [
            "\n".join([f'role {{label = "{label}", warps = 4}} body {{', *body, "yield", "}"])
            for label, body in zip(("one", "two"), lines, strict=True)
        ]
        return self.kernel("\n".join([*head, *roles]), 8)

    def kernel(self, body: str, warps: int) -> str:
        head = [
            "pipe kernel @k(%in: tile<ptr<bf16>>, %out: tile<ptr<bf16>>) "
            f'attributes {{target = "sm_90a", warps = {warps}}} {{',
            *(f"%n{i} = constant {{value = {i}}} : tile<i32>" for i in range(4)),
        ]
        for which in sorted(self.uses):
            head += [
                f"%{which}_rows = make_tensor_view %{which}, [], [] : {ROWS}",
                f"%{which}_tiles = make_partition_view %{which}_rows : "
                f"partition_view<tile=(64x64), {ROWS}>",
            ]
        return "\n".join([*head, body, "return", "}", ""])


def random_pipe(seed: int) -> str:
    """Return the text of a kernel."""
    maker = _Maker(seed)
    kind = maker.random.choice(
        (maker.alone, maker.around_a_ring, maker.around_a_ring, maker.in_turns)
    )
    return kind()
