"""Elementary functions in terms of operations that every target has, one element at a time."""
