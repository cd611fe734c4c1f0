"""CUDA Tile IR bytecode, in and out."""
