"""CUDA events for a machine without a GPU: each pair took 2 ms. Everything else stays the real torch of the CPU."""

import torch


class Event:
    def __init__(self, enable_timing=False):
        assert enable_timing

    def record(self):
        self.is_past = True

    def query(self):
        return self.is_past

    def elapsed_time(self, _after):
        return 2.0


def install():
    torch.cuda.Event = Event
    torch.cuda.is_initialized = lambda: True
    torch.cuda.is_current_stream_capturing = lambda: False
