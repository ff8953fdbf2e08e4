"""A stand-in for Accelerate: the module that copies batches, with its real name and the look-up of its function."""
