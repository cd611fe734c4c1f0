"""The front end of the `pipe` level: kernels that say who copies, who computes, what is in flight.

`reftile.pipe` has its names; `language` lists them.
"""
