"""Suites that any implementation of tile programs can be held against."""
