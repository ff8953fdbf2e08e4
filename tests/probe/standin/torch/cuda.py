"""Memory functions that answer from a table which the test fills; `calls` says who was asked for what.

And a device that works off one thing after the other, as a stream does: `compute`, `copy`, and events between them.
"""

import time

_initialized = False
calls = []
figures = {}
"""Device: the nested dictionary; a function is called for it."""


def is_initialized():
    return _initialized


def device_count():
    return len(figures)


def get_allocator_backend():
    return "native"


def memory_stats_as_nested_dict(device):
    calls.append(device)
    made = figures[device]
    return made() if callable(made) else made


class _Properties:
    uuid = "11111111-2222-3333-4444-555555555555"


def get_device_properties(device):
    return _Properties()


def _forbidden(*_):
    raise AssertionError("the probe must not call this")


current_device = set_device = synchronize = mem_get_info = init = reset_peak_memory_stats = _forbidden


class _Stream:
    free_at = 0.0
    is_capturing = False


def compute(seconds):
    """Queue a kernel; the host goes on."""
    _Stream.free_at = max(time.monotonic(), _Stream.free_at) + seconds


def copy(seconds, is_blocking=True):
    """Queue a copy; from ordinary memory the host waits for it, and for all before it."""
    compute(seconds)
    if is_blocking:
        time.sleep(max(0.0, _Stream.free_at - time.monotonic()))


def is_current_stream_capturing():
    return _Stream.is_capturing


class Event:
    made = 0

    def __init__(self, enable_timing=False):
        assert enable_timing
        Event.made += 1

    def record(self):
        self.at = max(time.monotonic(), _Stream.free_at)

    def query(self):
        return time.monotonic() >= self.at

    def elapsed_time(self, after):
        assert self.query()
        assert after.query()
        return 1000 * (after.at - self.at)

    synchronize = _forbidden
