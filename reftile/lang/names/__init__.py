"""The names that kernels use, one small function each.

Each is written once: its signature and docstring are what a user sees, its body builds operations.
The first parameter is the trace and is hidden from the user.
"""
