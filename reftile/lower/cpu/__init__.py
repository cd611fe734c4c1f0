"""The `cpu` target: a tile kernel as the Python source of one function that numba compiles."""
