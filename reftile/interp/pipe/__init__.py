"""The interpreter of `pipe` kernels: roles as coroutines, engines that act when a seed says so.

tokens     what is known to have happened: accesses done, writes visible to either proxy
places     shared memory: bytes by layout, and who touched them last
barriers   phases, named barriers, cluster barriers, steps
machine    agents (one for each replica of a role in a block) and their control flow
flights    what is under way: copies and products between issue and wait
actions, copies, products, waits   what each operation does
schedule   who acts next
findings   races and deadlocks in words
run        a launch
"""
