"""Layouts: where each element of a tile lives, as linear maps over GF(2)."""
