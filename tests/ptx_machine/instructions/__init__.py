"""Builders of instruction families; importing this package registers all of them."""

from tests.ptx_machine.operands import BUILDERS

from . import (
    access,
    arithmetic,
    atomics,
    bits,
    bulk,
    compare,
    control,
    convert,
    copies,
    floating,
    lanes,
    matrices,
    mbarriers,
    mma,
    moves,
    packed,
    wgmma,
)

FAMILIES = (
    access,
    arithmetic,
    atomics,
    bits,
    bulk,
    compare,
    control,
    convert,
    copies,
    floating,
    lanes,
    matrices,
    mbarriers,
    mma,
    moves,
    packed,
    wgmma,
)


def find_builder(opcode: str):
    """Return the builder that some family registered for an opcode, or None."""
    return BUILDERS.get(opcode)
