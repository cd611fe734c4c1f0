"""The interpreter of `simt` kernels: warps as coroutines, engines that act when a seed says so.

clocks     what each thread knows to have happened: accesses done, shown, shown to the other proxy
shadow     who touched each byte of memory last, and whether that is known to who comes next
fragments  which element each register of each lane holds
machine    clusters, blocks, warps; what is under way
control    regions under a mask of lanes: branches, loops, reductions
barriers   barriers with and without phases, of clusters; fences
shared     accesses to shared memory; bank conflicts
bulk       copies: of boxes, and of each thread
products   products of warpgroups and of warps
findings   races and deadlocks in words
run        a launch
"""
