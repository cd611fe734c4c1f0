"""Tile programs as data: types, operations, text, verification and rewriting."""
