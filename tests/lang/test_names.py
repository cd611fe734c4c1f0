"""The names of the language: what they compute, and what they refuse while tracing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reftile
import reftile.lang as ct
from reftile import KernelFunction, ReftileError

X = np.linspace(-2.0, 2.0, 16, dtype=np.float32).reshape(4, 4)


def apply(function: Any, out: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    """Store what `function` makes of whole tiles of the arrays."""

    @reftile.kernel
    def kernel(inputs, result):
        tiles = [
            ct.load(a, tuple(0 for _ in a.shape), ct.static_eval(shapes[i]))
            for i, a in enumerate(inputs)
        ]
        ct.store(result, ct.static_eval((0,) * out.ndim), function(*tiles))

    shapes = [a.shape for a in arrays]
    kernel[1](list(arrays), out)
    return out


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x[:, None, :].reshape((4, -1)), X),
        (lambda x: x.transpose(), X.T),
        (lambda x: ct.permute(x, (1, 0)), X.T),
        (lambda x: ct.cat((x, x), 0).extract((1, 0), (4, 4)), X),
        (lambda x: ct.where(x > 0, x, 0), np.maximum(X, 0)),
        (lambda x: max(x, 0.5), np.maximum(X, 0.5)),
        (lambda x: abs(x), np.abs(X)),
        (lambda x: x**2, X * X),
        (lambda x: ct.floor(x), np.floor(X)),
        (
            lambda x: ct.broadcast_to(ct.sum(x, 1, keepdims=True), (4, 4)),
            X.sum(1, keepdims=True) + 0 * X,
        ),
        (lambda x: ct.sort(x, 0, descending=True), -np.sort(-X, 0)),
        (lambda x: ct.cumsum(x, 0), np.cumsum(X, 0)),
        (lambda x: x @ ct.full((4, 4), 0.5, ct.float32), X @ np.full((4, 4), 0.5, np.float32)),
        (lambda x: ct.insert(x, (0, 0), ct.zeros((4, 4), ct.float32)), 0 * X),
        (lambda x: ct.bitcast(ct.bitcast(x, ct.int32), ct.float32), X),
        (lambda x: ct.unpack_from_bytes(ct.pack_to_bytes(x), ct.float32).reshape((4, 4)), X),
    ],
)
def test_floats(function: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(apply(function, floats(4, 4), X), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: ct.argmax(x, 1), X.argmax(1)),
        (lambda x: ct.argmin(x, 1), X.argmin(1)),
        (lambda x: ct.sum(x > 0, 1), (X > 0).sum(1)),
        (lambda x: ct.any(x > 1.5, 1).astype(ct.int32), (X > 1.5).any(1)),
        (lambda x: ct.topk(x, 1, axis=1)[1].reshape((4,)), X.argmax(1)),
        (lambda x: ct.arange(4, dtype=ct.int32, start=7, step=-1), [7, 6, 5, 4]),
        (lambda x: ~ct.arange(4, dtype=ct.int32), [-1, -2, -3, -4]),
        (lambda x: ct.arange(4, dtype=ct.int32) << 2, [0, 4, 8, 12]),
        (lambda x: ct.astile((1, 2, 3, 4), dtype=ct.int32), [1, 2, 3, 4]),
        (lambda x: ct.histogram(ct.astile((1, 2, 3, 1), dtype=ct.int32), 4), [0, 2, 1, 1]),
        (lambda x: ct.cdiv(ct.arange(4, dtype=ct.int32), 2), [0, 1, 1, 2]),
        (lambda x: divmod(ct.arange(4, dtype=ct.int32), 3)[1], [0, 1, 2, 0]),
    ],
)
def test_integers(function: Any, expected: Any) -> None:
    assert apply(function, ints(4), X).tolist() == np.asarray(expected).tolist()


def test_booleans_become_numbers() -> None:
    found = apply(lambda x: ct.full((4,), True, ct.float32), floats(4), X)
    assert found.tolist() == [1.0] * 4


def test_random_numbers_repeat_and_lie_in_range() -> None:
    make = lambda x: ct.rand(7, ct.arange(64, dtype=ct.int32))  # noqa: E731
    first, second = apply(make, floats(64), X), apply(make, floats(64), X)
    assert np.array_equal(first, second)
    assert 0 <= first.min() < first.max() < 1


@reftile.kernel
def elements(x, out):
    rows = ct.arange(4, dtype=ct.int32)
    t = ct.gather(x, (rows[:, None], ct.arange(8, dtype=ct.int32)[None, :]), padding_value=-1)
    ct.scatter(out, (rows[:, None], ct.arange(8, dtype=ct.int32)), t, mask=t > 0)


def test_elements_outside_are_padded_and_not_stored() -> None:
    out = floats(4, 8)
    elements[1](X, out)
    assert np.array_equal(out[:, :4], np.maximum(X, 0))
    assert not out[:, 4:].any()


@reftile.kernel
def rows_by_number(x, out):
    rows = ct.astile((3, 1), dtype=ct.int32)
    t = ct.load_advanced_indexing(x, (rows, ct.Slice(2, 2)))
    ct.store(out, (0, 0), t)


def test_rows_are_loaded_by_number() -> None:
    out = floats(2, 2)
    rows_by_number[1](X, out)
    assert np.array_equal(out, X[[3, 1], 2:4])


@reftile.kernel
def windows(x, out):
    view = x.tiled_view((4,), traversal_steps=(2,), padding_mode=ct.PaddingMode.ZERO)
    for i in range(view.num_tiles(0)):
        ct.scatter(out, i, ct.sum(view.load((i,))))
    out.slice(0, 4, 8).tiled_view((4,)).atomic_store_add((0,), ct.full((4,), 5, out.dtype))


def test_views_step_and_slices_start_later() -> None:
    x, out = np.arange(8, dtype=np.int32), ints(8)
    windows[1](x, out)
    assert out.tolist() == [6, 14, 22, 13, 5, 5, 5, 5]


@reftile.kernel
def atomics(counter, old):
    i = ct.bid(0)
    before = ct.atomic_add(counter, 0, 1)
    ct.scatter(old, before, i)
    memory = counter.get_raw_memory()
    memory.atomic_max_offset(1, i)


def test_atomics_give_what_was_there() -> None:
    counter, old = ints(2), np.full(4, -1, np.int32)
    atomics[4](counter, old)
    assert counter.tolist() == [4, 3]
    assert sorted(old.tolist()) == [0, 1, 2, 3]


@reftile.kernel
def talk(x):
    t = ct.load(x, (0,), (2,))
    print(f"tile {t:.1f} and", 3, end="!\n")
    ct.printf("%d%%\n", ct.bid(0))


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    talk[1](np.array([0.5, 1.5], np.float32))
    assert capsys.readouterr().out == "tile [0.5, 1.5] and 3!\n0%\n"


# What is refused while tracing


def refused(function: Any, *arrays: np.ndarray) -> str:
    with pytest.raises(ReftileError) as error:
        apply(function, floats(4, 4), *(arrays or (X,)))
    return error.value.diagnosis.rule


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (lambda x: x + ct.zeros((3,), ct.float32), "lang.shape.broadcast"),
        (lambda x: x.reshape((5, 5)), "lang.shape.reshape"),
        (lambda x: ct.cat((x, ct.zeros((4, 2), ct.float32)), 0), "lang.shape.cat"),
        (lambda x: ct.extract(x, (0, 0), (3, 4)), "lang.shape.divides"),
        (lambda x: ct.mma(x, ct.zeros((8, 4), ct.float32), x), "lang.mma.shape"),
        (lambda x: ct.mma(x, x, x.astype(ct.float16)), "lang.mma.accumulator"),
        (lambda x: ct.mma(x, x.astype(ct.float16), x), "lang.mma.dtype"),
        (lambda x: ct.sum(x, 2), "lang.axis"),
        (lambda x: ct.permute(x, (0, 0)), "lang.axis"),
        (lambda x: ct.zeros((ct.bid(0), 4), ct.float32), "lang.constant.int"),
        (lambda x: ct.zeros((0, 4), ct.float32), "lang.shape.positive"),
        (lambda x: x & 1, "lang.dtype.bits"),
        (lambda x: (x > 0) + (x < 0), "lang.dtype.bool"),
        (lambda x: x[0], "lang.subscript"),
        (lambda x: x.nothing, "lang.attribute"),
        (lambda x: ct.full((4, 4), 300, ct.int8), "lang.constant.range"),
        (lambda x: x.astype(ct.float8_e5m2) + 1, "lang.dtype.promote"),
        (lambda x: x if x > 0 else -x, "lang.condition"),
        (lambda x: x.astype(ct.float64), "lang.dtype.store"),
        (lambda x: ct.reduce(x, 0, lambda a, b: print(a), 0), "lang.type.number"),
    ],
)
def test_mistakes_are_found_while_tracing(function: Any, rule: str) -> None:
    assert refused(function) == rule


def test_an_index_of_the_wrong_rank_names_the_array() -> None:
    @reftile.kernel
    def wrong(x):
        ct.load(x, (0, 0), (4, 4))

    kernel: KernelFunction = wrong
    with pytest.raises(ReftileError, match="1-dimensional float32 array `x`"):
        kernel.trace(X.reshape(16))


def test_static_names() -> None:
    @reftile.kernel
    def static(x, n: ct.Constant[int]):
        ct.static_assert(x.dtype == ct.float32, f"found {x.dtype}")
        value = ct.static_eval([i * i for i in range(n)][-1])
        ct.scatter(x, 0, value)

    x = floats(1)
    static[1](x, 4)
    assert x[0] == 9
    with pytest.raises(ReftileError, match="found float64"):
        static.trace(np.zeros(1), 4)
