"""placeholder"""


def run_batched(*a):
    raise NotImplementedError
