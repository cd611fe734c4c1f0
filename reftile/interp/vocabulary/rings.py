"""Words of meanings: the slots of rings."""

from __future__ import annotations

import numpy as np

from reftile.interp.values import Array


def advance(slot: Array, phase: Array, stages: int) -> tuple[Array, Array]:
    """The next slot of a ring, and the phase to wait for there: it flips on the way round."""
    following = slot + np.int32(1)
    around = following == stages
    return np.where(around, np.int32(0), following), phase ^ around
