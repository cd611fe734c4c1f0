"""Cases of control flow: loops and branches, what they carry and where they end."""

# Programs are written as they read; their lines may be long.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator

from reftile.conformance.cases import Case
from reftile.conformance.suites.common import Settings
from reftile.conformance.suites.script import STORE, Script, cases_of, typed


def cases(settings: Settings) -> Iterator[Case]:
    """All of them."""
    yield from cases_of((*loops(), *branches()))


def loops() -> Iterator[Script]:
    """`for`, `loop`, `continue`, `break`."""
    total = """  %result = for LOWER, UPPER, STEP, [%c0] : tile<T> body(%i: tile<T>, %acc: tile<T>) {
    %next = addi %acc, %i : tile<T>
    continue %next
  }"""
    ranges = (
        ("0-10-1", "%c0", "%c10", "%c1", 45),
        ("1-10-3", "%c1", "%c10", "%c3", 1 + 4 + 7),
        ("empty", "%c3", "%c3", "%c1", 0),
        ("backward", "%c10", "%c0", "%c1", 0),
        ("one", "%c2", "%c3", "%c10", 2),
    )
    for dtype in ("i8", "i16", "i32", "i64"):
        for name, low, high, step, expected in ranges:
            text = total.replace("LOWER", low).replace("UPPER", high).replace("STEP", step)
            yield Script(
                "for",
                f"sum-{name}",
                typed(text, dtype) + STORE,
                [("out", dtype, [expected])],
                dtype=dtype,
                covers=["continue.meaning"],
            )
    count = """  %low = constant {value = LOW} : tile<i8>
  %high = constant {value = HIGH} : tile<i8>
  %step = constant {value = STEP} : tile<i8>
  %result = for %low, %high, %step, [%c0] FLAG: tile<i32> body(%i: tile<i8>, %n: tile<i32>) {
    %next = addi %n, %c1 : tile<i32>
    continue %next
  }"""
    for name, low, high, step, flag, expected in (
        ("signed", -3, 3, 1, "", 6),
        ("unsigned-empty", 200, 100, 1, "{unsigned_cmp} ", 0),
        ("unsigned", 120, 136, 2, "{unsigned_cmp} ", 8),
        ("signed-empty", 120, -120, 1, "", 0),
        ("ends-at-the-top", 120, 127, 50, "", 1),
        ("last-does-not-fit", 100, 127, 20, "", 2),
        ("unsigned-last-does-not-fit", 200, 255, 50, "{unsigned_cmp} ", 2),
    ):
        text = (
            count.replace("LOW", str(low))
            .replace("HIGH", str(high))
            .replace("STEP", str(step))
            .replace("FLAG", flag)
        )
        yield Script("for", f"i8-{name}", typed(text, "i32") + STORE, [("out", "i32", [expected])])
    yield from short_loops()
    swap = """  %a, %b = for %c0, %c10, %c1, [%c1, %c1] : tile<T>, tile<T> body(%i: tile<T>, %x: tile<T>, %y: tile<T>) {
    %s = addi %x, %y : tile<T>
    continue %y, %s
  }
  %result = addi %a, %c0 : tile<T>"""
    yield Script(
        "for", "fibonacci", typed(swap, "i64") + STORE, [("out", "i64", [89])], dtype="i64"
    )
    tiles = """  %start = iota : tile<6xi32>
  %sum = for %c0, %c3, %c1, [%start] : tile<6xi32> body(%i: tile<i32>, %t: tile<6xi32>) {
    %d = addi %t, %t : tile<6xi32>
    continue %d
  }
  %v = make_tensor_view %out, [], [] : tensor_view<6xi32, strides=[1]>
  %p = make_partition_view %v : partition_view<tile=(6), tensor_view<6xi32, strides=[1]>>
  %stored = store_view_tko %sum, %p, [%c0] {ordering = weak} : token"""
    yield Script(
        "for", "carries-tiles", typed(tiles, "i32"), [("out", "i32", [8 * i for i in range(6)])]
    )
    nested = """  %result = for %c0, %c3, %c1, [%c0] : tile<T> body(%i: tile<T>, %acc: tile<T>) {
    %inner = for %c0, %i, %c1, [%acc] : tile<T> body(%j: tile<T>, %n: tile<T>) {
      %m = addi %n, %c10 : tile<T>
      continue %m
    }
    continue %inner
  }"""
    yield Script("for", "nested", typed(nested, "i32") + STORE, [("out", "i32", [30])])
    skip = """  %result = for %c0, %c10, %c1, [%c0] : tile<T> body(%i: tile<T>, %acc: tile<T>) {
    %small = cmpi %i, %c3 {predicate = less_than, signedness = signed} : tile<i1>
    if %small then {
      continue %acc
    }
    %next = addi %acc, %i : tile<T>
    continue %next
  }"""
    yield Script(
        "for",
        "continue-in-if",
        typed(skip, "i32") + STORE,
        [("out", "i32", [42])],
        covers=["continue.meaning", "if.meaning"],
    )
    power = """  %limit = constant {value = 100} : tile<T>
  %result = loop %c1 : tile<T> body(%p: tile<T>) {
    %twice = addi %p, %p : tile<T>
    %enough = cmpi %limit, %twice {predicate = less_than, signedness = signed} : tile<i1>
    if %enough then {
      break %twice
    }
    continue %twice
  }"""
    yield Script(
        "loop",
        "power",
        typed(power, "i32") + STORE,
        [("out", "i32", [128])],
        covers=["break.meaning", "continue.meaning"],
    )
    other = """  %result, %flag = loop %c1, %c10 : tile<T>, tile<i1> body(%p: tile<T>, %q: tile<T>) {
    %s = addi %p, %q : tile<T>
    %odd = trunci %s : tile<i1>
    break %s, %odd
  }
  %s2 = store_ptr_tko %out2, %flag {ordering = weak} : token"""
    yield Script(
        "loop",
        "results-of-other-types",
        typed(other, "i32") + STORE,
        [("out", "i32", [11]), ("out2", "i1", [1])],
        covers=["break.meaning"],
    )
    yield Script(
        "break",
        "leaves-the-innermost",
        typed(
            """  %result = for %c0, %c3, %c1, [%c0] : tile<T> body(%i: tile<T>, %acc: tile<T>) {
    %n = loop %acc : tile<T> body(%p: tile<T>) {
      %q = addi %p, %c1 : tile<T>
      break %q
    }
    continue %n
  }""",
            "i32",
        )
        + STORE,
        [("out", "i32", [3])],
    )


def short_loops() -> Iterator[Script]:
    """Loops that end before a pipeline of loads would be full; only the launch knows their bounds."""
    gather = """  %result = for %low, %high, %step, [%c0] FLAG: tile<T> body(%i: tile<I>, %acc: tile<T>) {
    %at = offset %in, %i : tile<ptr<T>>
    %x, %loaded = load_ptr_tko %at {ordering = weak} : tile<T>, token
    %next = addi %acc, %x : tile<T>
    continue %next
  }"""
    numbers = [1 << i for i in range(62)]
    for dtype, low, high, step in (
        *(("i32", 0, high, 1) for high in (0, 1, 2, 5, 40, 60)),
        *(("i8", 1, high, 2) for high in (0, 1, 4)),
        ("i64", 2, 0, 2),
    ):
        for sign, flag in (("signed", ""), ("unsigned", "{unsigned_cmp} ")):
            text = gather.replace("<I>", f"<{dtype}>").replace("FLAG", flag)
            yield Script(
                "for",
                f"{dtype}-{sign}-loads-{low}-{high}-{step}",
                typed(text, "i64") + STORE,
                [("out", "i64", [sum(numbers[low:high:step])])],
                [("in", "i64", numbers)],
                [("low", dtype, low), ("high", dtype, high), ("step", dtype, step)],
                dtype="i64",
                covers=["continue.meaning", "load_ptr_tko.meaning"],
            )


def branches() -> Iterator[Script]:
    """`if`, `yield`, `return`."""
    choose = """  %yes = constant {value = FLAG} : tile<i1>
  %result = if %yes : tile<T> then {
    yield %c3
  } otherwise {
    yield %c10
  }"""
    for flag, expected in (("true", 3), ("false", 10)):
        yield Script(
            "if",
            flag,
            typed(choose.replace("FLAG", flag), "i32") + STORE,
            [("out", "i32", [expected])],
            covers=["yield.meaning"],
        )
    alone = """  %yes = constant {value = FLAG} : tile<i1>
  %first = store_ptr_tko %out, %c1 {ordering = weak} : token
  if %yes then {
    %second = store_ptr_tko %out, %c2, token=%first {ordering = weak} : token
    yield
  }"""
    for flag, expected in (("true", 2), ("false", 1)):
        yield Script(
            "if",
            f"without-otherwise-{flag}",
            typed(alone.replace("FLAG", flag), "i32"),
            [("out", "i32", [expected])],
        )
    leave = """  %yes = constant {value = FLAG} : tile<i1>
  %first = store_ptr_tko %out, %c1 {ordering = weak} : token
  if %yes then {
    return
  }
  %second = store_ptr_tko %out, %c2, token=%first {ordering = weak} : token"""
    for flag, expected in (("true", 1), ("false", 2)):
        yield Script(
            "return",
            f"in-if-{flag}",
            typed(leave.replace("FLAG", flag), "i32"),
            [("out", "i32", [expected])],
        )
    inside = """  %first = store_ptr_tko %out, %c1 {ordering = weak} : token
  %n = for %c0, %c10, %c1, [%c0] : tile<T> body(%i: tile<T>, %acc: tile<T>) {
    return
  }
  %second = store_ptr_tko %out, %c2, token=%first {ordering = weak} : token"""
    yield Script("return", "in-for", typed(inside, "i32"), [("out", "i32", [1])])
    tokens = """  %yes = constant {value = FLAG} : tile<i1>
  %first = store_ptr_tko %out, %c1 {ordering = weak} : token
  %t = if %yes : token then {
    %a = store_ptr_tko %out, %c2, token=%first {ordering = weak} : token
    yield %a
  } otherwise {
    yield %first
  }
  %x, %u = load_ptr_tko %out, token=%t {ordering = weak} : tile<T>, token
  %y = addi %x, %c10 : tile<T>
  %last = store_ptr_tko %out, %y, token=%u {ordering = weak} : token"""
    for flag, expected in (("true", 12), ("false", 11)):
        yield Script(
            "yield",
            f"token-{flag}",
            typed(tokens.replace("FLAG", flag), "i32"),
            [("out", "i32", [expected])],
        )
