"""Expected values, from exact integers, fractions and mpmath.

Nothing here imports reftile: not its interpreter, not its formulas, not its number formats. Values
travel as *codes*: the bit pattern of each element in an unsigned 64-bit array. What may come out of
an operation is an `Answer`: for each element the least and the greatest code that is accepted.
"""
