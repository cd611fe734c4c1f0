"""Random tile programs that are valid by construction, and what must hold for each of them."""
