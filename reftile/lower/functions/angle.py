"""Functions of angles, in f32.

Coefficients are fitted to the interval, the greatest relative error least.
"""

from __future__ import annotations

import math

from reftile.ir import ops
from reftile.ir.core import Block
from reftile.ir.dtypes import F32, I32
from reftile.lower.functions.exponential import SHIFT
from reftile.lower.functions.scalar import Scalar, with_sign_of

SIN = (2.8375122838042444e-06, -0.00019853511184919626, 0.008333380334079266, -0.1666666716337204)
"""(sin(r) / r - 1) / r**2 by r**2, for |r| up to pi / 4, relative error of the sine 2**-32."""
COS = (2.443066841806285e-05, -0.00138873013202101, 0.04166664555668831)
"""(cos(r) - 1 + r**2 / 2) / r**4 by r**2, for |r| up to pi / 4, error of the cosine 2**-33."""
ATAN = (
    0.0011345221428200603,
    -0.007425363175570965,
    0.02277761697769165,
    -0.04498325660824776,
    0.06763648986816406,
    -0.08821462094783783,
    0.11061233282089233,
    -0.14280343055725098,
    0.1999971568584442,
    -0.333333283662796,
)
"""(atan(q) / q - 1) / q**2 by q**2, for |q| up to 1, relative error of atan 2**-31."""
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""Pi / 2 as a sum of three f32."""
TWO_BY_PI = (
    0x00000000,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)
"""The first 224 bits of 2 / pi behind its point, after 32 zeros."""
FAR = 2.0**15
"""From here on three parts of pi / 2 are not enough."""
NEAR = 2.0**-13
"""Below it sine and tangent are the angle itself, to a quarter of a unit."""


def reduce_angle(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return (r, n) with x = n pi / 2 + r, |r| up to pi / 4 and a little; n counts modulo 4."""

    def near(block: Block) -> tuple[Scalar, Scalar]:
        inner = x.inside(block)
        shifted = inner.times_plus(2 / math.pi, SHIFT)
        n = shifted - SHIFT
        r = inner
        for part in HALF_PI:
            r = n.times_plus(-part, r)
        return r, shifted.bits()

    return (x.magnitude() < FAR).branch((F32, I32), near, lambda b: _reduce_far(x.inside(b)))  # type: ignore[return-value]


def _reduce_far(x: Scalar) -> tuple[Scalar, Scalar]:
    """As `reduce_angle`, with as many bits of 2 / pi as the exponent asks for.

    Source: Payne and Hanek, "Radian reduction for trigonometric functions", 1983. x is m 2**k with
    an integer m of 24 bits. Bits of 2 / pi above 2**(2 - k) only add whole turns, so the 96 bits
    below them are multiplied by m, and of that the first 64 bits are kept: 2 of n, 62 of a
    fraction, which is at least 2**-31 for all f32.
    """
    field = (x.bits() >> 23) & 0xFF
    skipped = field - (150 - 30)  # k + 30: 32 zeros stand in front, and 2 bits of n are kept.
    index, shift = skipped >> 5, skipped & 31
    words = [x.constant(w, I32) for w in TWO_BY_PI[:4]]
    for i in range(1, 5):
        is_there = index.equals(i)
        words = [is_there.choose(index.like(TWO_BY_PI[i + k]), w) for k, w in enumerate(words)]
    rest = 31 - shift  # Shifts go up to 31.
    high, middle, low = ((words[i] << shift) | ((words[i + 1] >> 1) >> rest) for i in range(3))
    m = ((x.bits() & 0x007FFFFF) | x.constant(0x00800000, I32)).widened()
    product = (m * low.widened()) >> 32
    product = m * middle.widened() + product
    product = ((m * high.widened()) << 32) + product
    # Round to the nearest n: the fraction then lies between -1/2 and 1/2.
    n = ((product + (1 << 61)) >> 62).narrowed()
    fraction = (product << 2).rounded()
    # Infinity and NaN give NaN.
    fraction = fraction * 2.0**-64 + (x - x)
    r = fraction.times_plus(HALF_PI[0], fraction * HALF_PI[1])
    is_minus = x.bits() < 0
    return is_minus.choose(-r, r), is_minus.choose(0 - n, n)


def _both(r: Scalar) -> tuple[Scalar, Scalar]:
    """Sine and cosine of a reduced angle."""
    square = r * r
    sine = (r * square).times_plus(square.polynomial(SIN), r)
    cosine = (square * square).times_plus(square.polynomial(COS), square.times_plus(-0.5, 1.0))
    return sine, cosine


def _turned(sine: Scalar, cosine: Scalar, n: Scalar) -> Scalar:
    """The sine of an angle n quarters of a turn further."""
    y = (n & 1).equals(0).choose(sine, cosine)
    return (y.bits() ^ ((n & 2) << 30)).as_float()


def sin(x: Scalar) -> Scalar:
    """The sine."""
    r, n = reduce_angle(x)
    return (x.magnitude() < NEAR).choose(x, _turned(*_both(r), n))


def cos(x: Scalar) -> Scalar:
    """The cosine."""
    r, n = reduce_angle(x)
    return _turned(*_both(r), n + 1)


def tan(x: Scalar) -> Scalar:
    """The tangent."""
    r, n = reduce_angle(x)
    sine, cosine = _both(r)
    is_even = (n & 1).equals(0)
    y = is_even.choose(sine, -cosine) / is_even.choose(cosine, sine)
    return (x.magnitude() < NEAR).choose(x, y)


def atan2(x: Scalar, y: Scalar) -> Scalar:
    """The angle of the point with ordinate x and abscissa y."""
    ordinate, abscissa = x.magnitude(), y.magnitude()
    greater = ordinate.make(ops.Maxf, abscissa, propagate_nan=True)
    smaller = ordinate.make(ops.Minf, abscissa, propagate_nan=True)
    q = smaller / greater
    q = greater.equals(0.0).choose(greater, q)
    q = smaller.equals(math.inf).choose(q.like(1.0), q)
    square = q * q
    angle = (q * square).times_plus(square.polynomial(ATAN), q)
    angle = (ordinate > abscissa).choose(math.pi / 2 - angle, angle)
    angle = (y.bits() < 0).choose(math.pi - angle, angle)
    return with_sign_of(angle, x)
