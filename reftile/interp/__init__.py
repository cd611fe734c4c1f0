"""The meaning of programs: every level of the IR executed with NumPy."""
