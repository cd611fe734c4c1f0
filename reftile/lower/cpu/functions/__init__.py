"""What generated kernels call: machine instructions and numerics, as numba functions.

Imported when a kernel is compiled, never before: numba is heavy.
"""
