"""NVIDIA's CUDA Tile IR compiler, `tileiras`, as an implementation under test.

Programs are exported as Tile IR bytecode, compiled by `tileiras` and run on an NVIDIA GPU.
Compiling and running may happen on two machines: what was compiled goes into a bundle, one file,
which is all that the machine with the GPU needs besides reftile and a driver.

    reftile conformance compile bundle.zip --gpu sm_90         # needs nvidia-cuda-tileiras
    reftile conformance run --backend tileiras:bundle.zip      # needs a GPU
"""
