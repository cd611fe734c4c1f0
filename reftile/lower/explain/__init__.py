"""What a kernel becomes and why: engines, instructions, memory, registers, occupancy."""
