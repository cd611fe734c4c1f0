"""The executable reference for tile programs."""
