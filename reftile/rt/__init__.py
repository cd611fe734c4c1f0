"""Assemble, cache, launch and time compiled kernels."""
