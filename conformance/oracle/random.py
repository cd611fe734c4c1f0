"""Philox4x32, from the paper's description: J. Salmon and others, SC 2011."""

from __future__ import annotations

from reftile.conformance.oracle.answer import Answer, Call
from reftile.conformance.oracle.formats import codes

WORD = 0xFFFFFFFF
KNOWN = (
    # counter, key, words: kat_vectors of the authors' Random123 1.09, philox4x32 with 10 rounds
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
"""The published known-answer values."""


def philox4x32(
    counter: tuple[int, int, int, int], key: tuple[int, int], rounds: int
) -> tuple[int, int, int, int]:
    """Four random words of a counter under a key."""
    a, b, c, d = counter
    low, high = key
    for turn in range(rounds):
        if turn:
            low, high = low + 0x9E3779B9 & WORD, high + 0xBB67AE85 & WORD
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = right >> 32 ^ b ^ low, right & WORD, left >> 32 ^ d ^ high, left & WORD
    return a, b, c, d


def philox(call: Call) -> list[Answer]:
    """The four results."""
    *counters, key0, key1 = call.operands
    rows = zip(*(c.reshape(-1).tolist() for c in counters), strict=True)
    key = int(key0.reshape(-1)[0]), int(key1.reshape(-1)[0])
    words = [philox4x32(row, key, call.attribute("rounds", 10)) for row in rows]
    return [Answer.exactly("i32", codes([w[i] for w in words])) for i in range(4)]
