"""An execution as a picture: events in a column for each block, edges between them.

Blocks stand side by side, an operation's elements beside each other. Time runs down: an operation
stands below what it waits for and what it reads, unless loads see stores that run later. Edges that
follow from others (a token over two operations, coherence over two writes) are left out, and what
the host finds says in words who wrote it. The result is one SVG element, or an HTML page around it
with the outcome and the races.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from reftile.interp.model.evaluate import Evaluator, Relation, Space
from reftile.interp.model.event_set import Unit
from reftile.interp.model.execution import Execution
from reftile.interp.model.explain import missing_edge
from reftile.interp.model.relations import spec_model
from reftile.interp.model.values import Special, evaluate

COLOURS = {
    "tok": "#888888",
    "rf": "#0a7d2c",
    "co": "#8a5a00",
    "fr": "#c2410c",
    "sw": "#1d4ed8",
    "race": "#dc2626",
}
"""Edge colours by relation; races are drawn last."""
NAMES = {
    "tok": "token",
    "rf": "reads from",
    "co": "coherence",
    "fr": "reads before",
    "sw": "synchronizes with",
    "race": "race",
}
BOX_WIDTH, BOX_HEIGHT, GAP, ROW, MARGIN = 200, 34, 24, 72, 16
GUTTER = 80
"""Between columns, where edges run."""
TITLE = 26
LEGEND_WIDTH = 140
CHARACTER = 7.4
"""The width of a character, generously: fonts differ."""


@dataclass(frozen=True, slots=True)
class _Box:
    """Where an access is drawn, in pixels, and what stands in it."""

    x: float
    y: float
    lines: tuple[str, str]
    fill: str


def edges(execution: Execution) -> dict[str, list[tuple[int, int]]]:
    """Return the pairs of events to draw for each relation."""
    space = execution.events.space
    evaluator = Evaluator(spec_model(), space, execution.events.base)
    given = execution.rf, execution.co, execution.tok
    co, tok = (space.restrict(r, execution.exists) for r in (execution.co, execution.tok))
    found: dict[str, Relation] = {
        "tok": _reduced(space, tok),
        "rf": execution.rf,
        "co": _reduced(space, co),
        "fr": _first(space, evaluator.defined("fr", *given), co),
        "sw": evaluator.defined("sw", *given),
        "race": execution.race,
    }
    return {
        name: [(a, b) for a, b in space.pairs(r) if name != "race" or a < b]
        for name, r in found.items()
    }


def _reduced(space: Space, order: Relation) -> Relation:
    """A transitive relation without the pairs that go over a third event."""
    return order & ~space.compose(order, order)


def _first(space: Space, fr: Relation, co: Relation) -> Relation:
    """Of the writes after each read, the first in coherence."""
    return fr & ~space.compose(fr, co)


class _Drawing:
    def __init__(self, execution: Execution) -> None:
        self.execution, self.events = execution, execution.events
        self.boxes: dict[int, _Box] = {}
        self.width = self.height = 0.0
        self.box_width = float(BOX_WIDTH)
        self.edges = edges(execution)
        self._place()

    def _place(self) -> None:
        """Give every access a box; init on top, exit at the bottom, blocks as columns between."""
        shown = [u for u in self.events.units if self._shows(u.number)]
        longest = max((len(line) for u in shown for line in self._lines(u.number)), default=0)
        self.box_width = max(BOX_WIDTH, longest * CHARACTER + 12)
        has_init = any(u.role == "init" for u in shown)
        top = MARGIN + (ROW if has_init else 0) + TITLE
        rows = self._rows([u for u in shown if u.role == "op"])
        x, bottom = float(MARGIN + GUTTER), float(top)
        tops: list[tuple[float, float, str]] = []
        for number, block in enumerate(self.events.program.blocks):
            ops = {u.op for u in shown if u.block == number}
            most = 1
            for op in ops:
                mine = [u for u in shown if u.op == op]
                most = max(most, len(mine))
                for column, unit in enumerate(mine):
                    y = top + ROW * rows[op]
                    self._box(unit.number, x + column * (self.box_width + 6), y)
                bottom = max(bottom, top + ROW * (rows[op] + 1))
            width = most * (self.box_width + 6)
            device = f", device {block.device}" if block.device else ""
            tops.append((x, top - 10, f"block {block.name}{device}"))
            x += width + GUTTER
        self.columns = tops
        self.width = max(x, MARGIN + len(self._shown_edges()) * LEGEND_WIDTH)
        for role, y in (("init", float(MARGIN)), ("exit", bottom)):
            row = [u for u in shown if u.role == role]
            for column, unit in enumerate(row):
                self._box(unit.number, MARGIN + GUTTER + column * (self.box_width + GAP), y)
            wide = MARGIN + GUTTER + len(row) * (self.box_width + GAP)
            self.width = max(self.width, wide)
        self.height = max([b.y for b in self.boxes.values()], default=0.0) + BOX_HEIGHT + MARGIN

    def _rows(self, units: list[Unit]) -> dict[int, int]:
        """The row of each operation: below what comes before it, and alone in its column."""
        before: dict[int, set[int]] = {u.op: set() for u in units}
        for name in ("tok", "rf", "co"):
            for a, b in self.edges[name]:
                first, second = (self.events.units[self.events.events[e].unit].op for e in (a, b))
                if first in before and second in before and first != second:
                    before[second].add(first)
        rows: dict[int, int] = {}
        taken: set[tuple[int, int]] = set()
        left = sorted(before)
        while left:
            # In a cycle (loads that see later stores) the text decides who comes first.
            op = next((o for o in left if before[o] <= rows.keys()), left[0])
            left.remove(op)
            block = self.events.ops[op][0]
            row = max((rows[o] + 1 for o in before[op] if o in rows), default=0)
            while (block, row) in taken:
                row += 1
            taken.add((block, row))
            rows[op] = row
        return rows

    def _shows(self, number: int) -> bool:
        """Whether an access happens and, for init, is read or ordered before something read."""
        unit = self.events.units[number]
        happens = any(self.execution.exists >> e & 1 for e in (*unit.reads, *unit.writes))
        if unit.role != "init":
            return happens
        return any(w in unit.writes for w in self.execution.reads_from.values())

    def _lines(self, number: int) -> tuple[str, str]:
        """What stands in the box of an access."""
        unit = self.events.units[number]
        access = unit.access
        if unit.role != "op":
            first = access.name
        else:
            op = self.events.ops[unit.op][1]
            what = access.modify if access.kind == "rmw" else access.kind
            scope = f".{op.scope}" if op.scope else ""
            first = f"{op.name}: {what}.{op.order}{scope}"
        value = self.execution.value(access.register) if access.register else None
        second = access.name if unit.role == "op" else ""
        if value is not None:
            shown = value.value if isinstance(value, Special) else str(value)
            second = f"{second} → {shown}" if second else f"→ {shown}"
            if unit.role == "exit":
                second += self._written_by(unit)
        elif access.value is not None:
            stored = evaluate(access.value, dict(self.execution.outcome))
            second += f" = {stored if isinstance(stored, int) else access.value}"
        elif unit.role == "init":
            buffer, place = self.events.program.buffer(access.location.buffer), access.location
            second = f"= {buffer.contents(place.start, place.size)}"
        return first, second

    def _written_by(self, unit: Unit) -> str:
        """Who wrote what the host finds."""
        names = {self.events.describe(self.execution.reads_from[r]) for r in unit.reads}
        return f" from {' and '.join(sorted(n.partition(':')[0] for n in names))}"

    def _box(self, number: int, x: float, y: float) -> None:
        unit = self.events.units[number]
        races = {e for pair in self.edges["race"] for e in pair}
        is_racing = any(e in races for e in (*unit.reads, *unit.writes))
        fill = "#fee2e2" if is_racing else "#f1f5f9" if unit.role != "op" else "#ffffff"
        self.boxes[number] = _Box(x, y, self._lines(number), fill)

    # SVG

    def svg(self) -> str:
        """Return the picture."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:.0f}" '
            f'height="{self.height + 30:.0f}" font-family="monospace" font-size="12">',
            "<defs>",
            *(self._marker(name) for name in COLOURS),
            "</defs>",
            *(self._edge(name, pair) for name, pairs in self.edges.items() for pair in pairs),
            *(self._text_box(box) for box in self.boxes.values()),
            *(self._title(*column) for column in self.columns),
            self._legend(),
            "</svg>",
        ]
        return "\n".join(p for p in parts if p)

    def _title(self, x: float, y: float, text: str) -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" font-weight="bold">{escape(text)}</text>'

    def _marker(self, name: str) -> str:
        return (
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{COLOURS[name]}"/>'
            "</marker>"
        )

    def _text_box(self, box: _Box) -> str:
        lines = "".join(
            f'<text x="{box.x + 6:.0f}" y="{box.y + 14 + 14 * n:.0f}">{escape(line)}</text>'
            for n, line in enumerate(box.lines)
        )
        return (
            f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{self.box_width:.0f}" '
            f'height="{BOX_HEIGHT}" rx="4" fill="{box.fill}" stroke="#334155"/>{lines}'
        )

    def _edge(self, name: str, pair: tuple[int, int]) -> str:
        first, second = (self.events.units[self.events.events[e].unit] for e in pair)
        a, b = self.boxes.get(first.number), self.boxes.get(second.number)
        if a is None or b is None or a is b or second.role == "exit":
            return ""
        dash = ' stroke-dasharray="5 3"' if name in ("fr", "co") else ""
        arrow = "" if name == "race" else f' marker-end="url(#{name})"'
        weight = 2.5 if name == "race" else 1.4
        return (
            f'<path d="{self._path(name, a, b)}" fill="none" stroke="{COLOURS[name]}" '
            f'stroke-width="{weight}"{dash}{arrow}><title>{NAMES[name]}</title></path>'
        )

    def _path(self, name: str, a: _Box, b: _Box) -> str:
        """From box to box through the gutters, so that no box is crossed on the way."""
        # Each relation has a place of its own on a box, so that edges do not lie on one another.
        place = list(COLOURS).index(name)
        down, across = 7 + 4.5 * place, self.box_width * (0.2 + 0.12 * place)
        if a.x == b.x and 0 < b.y - a.y <= ROW + TITLE:
            return f"M{a.x + across:.0f} {a.y + BOX_HEIGHT:.0f}L{b.x + across:.0f} {b.y:.0f}"
        if a.x == b.x:
            side = a.x + self.box_width
            bow = side + GUTTER * (0.35 + 0.1 * place)
            return (
                f"M{side:.0f} {a.y + down:.0f}C{bow:.0f} {a.y + down:.0f} {bow:.0f} "
                f"{b.y + down:.0f} {side:.0f} {b.y + down:.0f}"
            )
        x1, x2 = (a.x + self.box_width, b.x) if a.x < b.x else (a.x, b.x + self.box_width)
        if a.y == b.y and abs(x2 - x1) < GUTTER:
            return f"M{x1:.0f} {a.y + down:.0f}L{x2:.0f} {b.y + down:.0f}"
        bend = min(GUTTER, abs(x2 - x1)) * (0.7 if x1 < x2 else -0.7)
        return (
            f"M{x1:.0f} {a.y + down:.0f}C{x1 + bend:.0f} {a.y + down:.0f} {x2 - bend:.0f} "
            f"{b.y + down:.0f} {x2:.0f} {b.y + down:.0f}"
        )

    def _shown_edges(self) -> list[str]:
        """The relations of which at least one edge is drawn: between accesses that have a box."""
        events = self.events.events
        drawn = {u.number for u in self.events.units if self._shows(u.number) and u.role != "exit"}
        return [
            name
            for name, pairs in self.edges.items()
            if any(events[a].unit in drawn and events[b].unit in drawn for a, b in pairs)
        ]

    def _legend(self) -> str:
        shown = self._shown_edges()
        return "".join(
            f'<text x="{MARGIN + LEGEND_WIDTH * n}" y="{self.height + 14:.0f}" '
            f'fill="{COLOURS[name]}">{NAMES[name]}</text>'
            for n, name in enumerate(shown)
        )


def render_svg(execution: Execution) -> str:
    """Return an execution as one SVG element."""
    return _Drawing(execution).svg()


def render_html(execution: Execution) -> str:
    """Return an HTML page with the picture, the outcome, and each race with its missing edge."""
    name = escape(execution.events.program.name)
    values = "".join(
        f"<tr><td>{escape(register)}</td><td>{value.value if isinstance(value, Special) else value}"
        "</td></tr>"
        for register, value in execution.outcome
    )
    races = "".join(
        f"<li>{escape(str(race))}: {escape(missing_edge(race))}</li>" for race in execution.races()
    )
    found = f"<h2>Races</h2><ul>{races}</ul>" if races else ""
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{name}</title></head>'
        f"<body><h1>{name}</h1>{render_svg(execution)}<h2>Outcome</h2><table>{values}</table>"
        f"{found}</body></html>\n"
    )
