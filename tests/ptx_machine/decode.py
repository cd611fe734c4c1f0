"""Decoding of an entry: every instruction becomes an Op, or an error that names it.

Importing the instruction modules fills the table of builders.
"""

from __future__ import annotations

from . import text as t
from .errors import UnsupportedInstruction
from .instructions import find_builder
from .operands import Decoder, Modifiers
from .warp import Op

EXITS = ("ret", "exit")


def decode_entry(entry: t.Entry, symbols: dict[str, int]) -> list[Op]:
    """Return the code of an entry, ending in an exit."""
    decoder = Decoder(entry, symbols)
    code = [decode(decoder, ins) for ins in entry.code]
    scope = (0,)
    end = t.Instruction(
        None, "ret", (), (), entry.code[-1].line if entry.code else 0, "end of entry", scope
    )
    return [*code, decode(decoder, end)]


def decode(decoder: Decoder, ins: t.Instruction) -> Op:
    """Return the Op of one instruction."""
    decoder.touched, decoder.written = set(), set()
    guard = None
    if ins.guard is not None:
        guard = (decoder.slot(ins, t.Name(ins.guard[0]), "pred"), ins.guard[1])
    modifiers = Modifiers(ins)
    decoder.sync, decoder.target, decoder.owns_flight = None, None, False
    is_exit, uniform = ins.opcode in EXITS, False
    if is_exit:
        modifiers.flag("uni")
        step = nothing
    elif ins.opcode == "bra":
        uniform = modifiers.flag("uni")
        decoder.count(ins, 1)
        decoder.target, step = decoder.label(ins, ins.operands[0]), nothing
    else:
        builder = find_builder(ins.opcode)
        if builder is None:
            raise UnsupportedInstruction(
                f"line {ins.line}: unknown instruction {ins.opcode}: {ins.text}"
            )
        step = builder(decoder, ins, modifiers)
    modifiers.done()
    return Op(
        step,
        ins,
        guard,
        frozenset(decoder.touched),
        frozenset(decoder.written),
        decoder.sync,
        decoder.target,
        uniform,
        is_exit,
        decoder.owns_flight,
    )


def nothing(w: object) -> None:
    """The step of an instruction that only moves the program counter."""
