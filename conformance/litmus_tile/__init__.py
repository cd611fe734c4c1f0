"""The litmus tests as tile kernels: `generate.py` writes them, one file for each file of tests."""
