"""Special registers. Source: PTX ISA, "Special Registers"."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .warp import Warp

LANES = np.arange(32, dtype=np.uint64)
LANE_MASKS = {
    "%lanemask_eq": np.uint64(1) << LANES,
    "%lanemask_lt": (np.uint64(1) << LANES) - np.uint64(1),
    "%lanemask_le": (np.uint64(2) << LANES) - np.uint64(1),
    "%lanemask_gt": np.uint64(0xFFFFFFFF) & ~((np.uint64(2) << LANES) - np.uint64(1)),
    "%lanemask_ge": np.uint64(0xFFFFFFFF) & ~((np.uint64(1) << LANES) - np.uint64(1)),
}
AXES = {".x": 0, ".y": 1, ".z": 2}
VECTORS: dict[str, Callable[[Warp], tuple[int, int, int]]] = {
    "%ntid": lambda w: w.machine.block,
    "%ctaid": lambda w: w.cta.index,
    "%nctaid": lambda w: w.machine.grid,
    "%clusterid": lambda w: w.cta.cluster.index,
    "%nclusterid": lambda w: w.machine.cluster_grid,
    "%cluster_ctaid": lambda w: w.cta.position,
    "%cluster_nctaid": lambda w: w.machine.cluster_shape,
}
SCALARS: dict[str, Callable[[Warp], int]] = {
    "%warpid": lambda w: w.index,
    "%nwarpid": lambda w: 64,
    "%smid": lambda w: w.cta.number % 132,
    "%nsmid": lambda w: 132,
    "%gridid": lambda w: 1,
    "%cluster_ctarank": lambda w: w.cta.rank,
    "%cluster_nctarank": lambda w: len(w.cta.cluster.ctas),
    "%is_explicit_cluster": lambda w: int(w.machine.explicit_cluster),
    "%clock": lambda w: w.machine.steps & 0xFFFFFFFF,
    "%clock_hi": lambda w: w.machine.steps >> 32,
    "%clock64": lambda w: w.machine.steps,
    "%globaltimer": lambda w: w.machine.steps,
    "%globaltimer_lo": lambda w: w.machine.steps & 0xFFFFFFFF,
    "%dynamic_smem_size": lambda w: w.machine.dynamic_bytes,
    "%total_smem_size": lambda w: w.cta.shared.size,
    "%reserved_smem_offset_begin": lambda w: 0,
    "%reserved_smem_offset_end": lambda w: 1024,
}


def read_special(name: str) -> Callable[[Warp], np.ndarray] | None:
    """Return a reader of 32 uint64 lanes, or None when the name is unknown."""
    if name == "%laneid":
        return lambda w: LANES
    if name in LANE_MASKS:
        mask = LANE_MASKS[name]
        return lambda w: mask
    if name in SCALARS:
        scalar = SCALARS[name]
        return lambda w: np.full(32, scalar(w), np.uint64)
    base, axis = name[:-2], AXES.get(name[-2:])
    if axis is None:
        return None
    if base == "%tid":
        return lambda w: w.thread_index[axis]
    if base in VECTORS:
        vector = VECTORS[base]
        return lambda w: np.full(32, vector(w)[axis], np.uint64)
    return None
