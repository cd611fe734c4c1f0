"""Kernels written in Python, turned into tile IR."""
