"""Tensor maps: what the host encodes, and which bytes a box touches.

Source: CUDA driver API, "Tensor Map Object Management"; PTX ISA, "Tensors", "Swizzling modes".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .errors import AccessError, LaunchError

ELEMENT_BYTES = {
    "u8": 1,
    "u16": 2,
    "u32": 4,
    "s32": 4,
    "u64": 8,
    "s64": 8,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "tf32": 4,
}
SPAN_BYTES = {"none": 16, "32B": 32, "64B": 64, "128B": 128}


def swizzle(address: np.ndarray, mode: str) -> np.ndarray:
    """Return shared addresses with 16-byte chunks permuted: chunk bits are xored with row bits."""
    if mode == "none":
        return address
    bits = {"32B": 1, "64B": 2, "128B": 3}[mode]
    return address ^ (((address >> 7) & ((1 << bits) - 1)) << 4)


@dataclass(eq=False, slots=True)
class TensorMap:
    """A tiled tensor map over a NumPy array, innermost dimension first.

    array: the memory it describes; offset_bytes: where the tensor begins in it.
    strides: bytes, for dimensions 1 and up. fill: "zero" or "nan", for elements outside.
    """

    array: np.ndarray
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str = "none"
    element_strides: tuple[int, ...] = ()
    fill: str = "zero"
    offset_bytes: int = 0

    def __post_init__(self) -> None:
        rank = len(self.dims)
        self.element_strides = tuple(self.element_strides) or (1,) * rank
        require = [
            (1 <= rank <= 5, "rank is 1 to 5"),
            (len(self.strides) == rank - 1, "one stride per dimension but the innermost"),
            (
                len(self.box) == rank and len(self.element_strides) == rank,
                "box and element strides have the rank",
            ),
            (self.dtype in ELEMENT_BYTES, f"unknown element type {self.dtype}"),
            (self.swizzle in SPAN_BYTES, f"unknown swizzle {self.swizzle}"),
            (self.fill in ("zero", "nan"), "fill is zero or nan"),
            (
                self.fill == "zero" or self.dtype in ("f16", "bf16", "f32", "f64", "tf32"),
                "NaN fill needs floats",
            ),
            (all(1 <= d <= 2**32 for d in self.dims), "dimensions are 1 to 2**32"),
            (
                all(s % 16 == 0 and 0 <= s < 2**40 for s in self.strides),
                "strides are multiples of 16 bytes below 2**40",
            ),
            (all(1 <= b <= 256 for b in self.box), "box dimensions are 1 to 256"),
            (all(1 <= s <= 8 for s in self.element_strides), "element strides are 1 to 8"),
            (self.offset_bytes % 16 == 0, "the base is 16-byte aligned"),
        ]
        for holds, rule in require:
            if not holds:
                raise LaunchError(f"tensor map: {rule}")
        row = self.row_bytes
        if row % 16:
            raise LaunchError(
                f"tensor map: the inner box dimension is {row} bytes, not a multiple of 16"
            )
        if self.swizzle != "none" and row > SPAN_BYTES[self.swizzle]:
            raise LaunchError(
                f"tensor map: the inner box dimension is {row} bytes, over the {self.swizzle} span"
            )

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements per dimension that one transfer moves; strides thin the box out."""
        return tuple(-(-b // s) for b, s in zip(self.box, self.element_strides, strict=True))

    @property
    def row_bytes(self) -> int:
        return self.counts[0] * self.element_bytes

    @property
    def pitch_bytes(self) -> int:
        """Distance of rows in shared memory: the whole span under a swizzle (seen on an H200)."""
        return self.row_bytes if self.swizzle == "none" else SPAN_BYTES[self.swizzle]

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.counts)) * self.element_bytes

    def locate(self, coordinates: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Return byte offsets into the tensor and an inside mask of a box, in shared order."""
        if len(coordinates) != len(self.dims):
            raise AccessError(
                f"{len(coordinates)} coordinates for a tensor map of rank {len(self.dims)}"
            )
        if coordinates[0] * self.element_bytes % 16:
            raise AccessError(
                f"the innermost coordinate {coordinates[0]} is not a multiple of 16 bytes "
                "(an H200 reports an illegal instruction)"
            )
        strides = (self.element_bytes, *self.strides)
        offset, inside = np.zeros((), np.int64), np.ones((), bool)
        for axis in reversed(range(len(self.dims))):
            index = (
                coordinates[axis]
                + np.arange(self.counts[axis], dtype=np.int64) * self.element_strides[axis]
            )
            offset = offset[..., None] + index * strides[axis]
            inside = inside[..., None] & (index >= 0) & (index < self.dims[axis])
        return offset.reshape(-1), inside.reshape(-1)

    def shared_offsets(self, destination: int) -> np.ndarray:
        """Return the swizzled shared byte address of each element of a box at `destination`."""
        alignment = 128
        if destination % alignment:
            raise AccessError(
                f"tensor copies need a {alignment}-byte aligned place, found {destination:#x}"
            )
        rows = np.arange(int(np.prod(self.counts[1:])), dtype=np.int64) * self.pitch_bytes
        inner = np.arange(self.counts[0], dtype=np.int64) * self.element_bytes
        linear = (rows[:, None] + inner).reshape(-1) + destination
        return swizzle(linear, self.swizzle)

    def fill_bits(self) -> int:
        """Return the bit pattern of elements outside the tensor (f16 as an H200 fills it)."""
        if self.fill == "zero":
            return 0
        return {
            "f16": 0x7FF7,
            "bf16": 0x7FFF,
            "f32": 0x7FFFFFFF,
            "tf32": 0x7FFFFFFF,
            "f64": 0x7FFFFFFFFFFFFFFF,
        }[self.dtype]
