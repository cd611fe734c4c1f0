"""The versions of CUDA Tile IR bytecode, and what each added.

What an operation or one of its arguments needs stands in its record (`tile_ir.since`,
`tile_ir.arguments`); here is what does not belong to one operation.

Source: the release notes of CUDA Tile IR 13.1 to 13.5, and the comments `since` of NVIDIA's type
and attribute definitions.
"""

from __future__ import annotations

from reftile.ir.diagnostics import Diagnosis, ReftileError

MAJOR = 13
OLDEST, NEWEST = 1, 5
"""Minor versions; a version is its minor number throughout this package."""

UNIFIED_FLAGS = 3
"""Since 13.3 the optional fields of a type stand in one leading word of flags."""
POINTER_FLAGS = 4
"""Since 13.4 pointers and tensor views have such a word too."""
ENTRY_ARGUMENTS = 5
"""Since 13.5 an entry always has hints, and attributes of its arguments."""
SUBPROGRAM_FLAGS = 5
"""Since 13.5 the debug entry of a function has flags."""
GLOBAL_FLAGS = 3
"""Since 13.3 a global says whether it is visible and constant."""

DTYPES_SINCE = {"f8e8m0": 2, "f4e2m1": 3, "i4": 3}
ENUM_VALUES_SINCE = {("rounding", "nearest_away"): 4}
HINTS_SINCE = {"num_worker_warps_per_cta": 3, "default": 3}
RETURN_IN_LOOP_SINCE = 4


def parse_version(text: str) -> int:
    """Return the minor version of a text such as `13.3`.

    Raises:
        ReftileError: there is no such version.
    """
    major, _, minor = text.partition(".")
    if major == str(MAJOR) and minor.isdigit() and OLDEST <= int(minor) <= NEWEST:
        return int(minor)
    raise ReftileError(
        Diagnosis(
            "bytecode.version",
            f"there is no version `{text}` of CUDA Tile IR here",
            hint=f"versions are {version_text(OLDEST)} to {version_text(NEWEST)}",
        )
    )


def version_text(version: int) -> str:
    """Write a version as `13.3`."""
    return f"{MAJOR}.{version}"
