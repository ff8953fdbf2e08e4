"""Callbacks and wrappers for programs that name gpumon themselves.

Steps, waits and phases are seen without them (`gpumon run`, `gpumon.watch()`); each adds what cannot be seen from
outside, and switches the probe on. None of them reads a tensor: that would wait for the device.
"""
