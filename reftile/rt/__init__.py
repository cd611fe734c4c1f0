"""The runtime: machine code into a device, arguments to it, launches, and a cache on disk."""
