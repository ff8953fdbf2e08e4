"""The file that a probe writes and a monitor reads: one per training process, little endian, a fixed size.

The file is called ``PID.STARTTICKS`` (as the writer's own /proc names it; ticks: field 22 of /proc/self/stat), in the
first of ``directories()`` that is one of the writer's own without rights for others. It has mode 0600 and
``FILE_SIZE`` bytes from the start. A reader trusts nothing in it, compares
the four numbers of the header with its own constants and never uses them as offsets.

Header, ``HEADER_SIZE`` bytes, written in one piece, again whenever something in its body changed:

====== ======== ====================================================================================================
offset type     meaning
====== ======== ====================================================================================================
0      8 bytes  ``MAGIC``
8      u32 x 4  version, header size, number of slots, slot size
24     u64      length of the body, at most ``BODY_MOST``
32     bytes    the body: JSON in ASCII, see below; the rest is zero
4092   u32      crc32 of bytes 0 to 4091
====== ======== ====================================================================================================

The body is an object; each key may be absent or null, and a reader ignores keys it does not know:
``pid``, ``start`` (ticks), ``nspid`` (its number in each pid namespace that it can see, outermost first), ``boot``
(the boot's id), ``python`` ("3.11.7"), ``argv0`` (a file name), ``run`` (``GPUMON_RUN``: who started it), ``framework``
(pytorch, lightning, transformers, deepspeed, keras, tensorflow, jax: who tells the steps), ``source`` (what a step is:
"optimizer steps", "batches", ...), ``rank``, ``local_rank``, ``world_size``, ``modules`` (name: version, of the
frameworks that are loaded), ``environment`` (name: value, of the fixed list ``ENVIRONMENT``), ``devices`` (UUIDs, by
the process's own device number, null where one is not known), ``allocator`` (native, cuda-malloc-async, xla, tf-bfc),
``error`` (the name of the exception that ended the program), ``exit_code`` (written by ``gpumon run`` when its child,
whose file this is, is gone; minus n after signal n). Right after that it unlinks the file: who holds it open reads on.
``sampled`` (true: no probe writes this, but ``gpumon attach --sample`` from outside, which holds a lock on the file
meanwhile; of its slots ``step`` is the number of stacks it has looked at, ``samples`` that of those that waited for
data, and nothing else counts).

Slot, ``SLOT_SIZE`` bytes, at index ``seq % SLOTS``, one every ``PERIOD_S``: the fields of ``Slot`` in order, at the
offsets of ``SLOT``; then from ``PAIRS_AT`` on up to ``PAIRS_MOST`` consecutive steps of the interval as two u32 each,
microseconds of the step and of its data wait; the last eight bytes are crc32 of all before, and the low half of
``seq``. A slot whose crc is wrong is being written: take the one before. What is not known is -1 in the allocator's
figures, NaN in ``samples``, ``UNKNOWN`` in ``forward_ns``, ``h2d_ns``, ``compiles`` and ``compile_ns``, 0 in
``beat_ns`` and ``since_ns``.

Two clocks: ``wall_ns`` to show, ``mono_ns`` (CLOCK_MONOTONIC, which all processes of a machine share) for rates and
ages. So ``beat_ns``, ``since_ns`` and ``pause_since_ns`` become ages by the reader's own monotonic clock; in another
time namespace by ``mono_ns`` plus the age that ``wall_ns`` gives the slot.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

MAGIC = b"GPUMON1\0"
VERSION = 1
HEADER_SIZE = 4096
SLOTS = 256
SLOT_SIZE = 1024
FILE_SIZE = HEADER_SIZE + SLOTS * SLOT_SIZE
BODY_AT = 32
BODY_MOST = 4032
PERIOD_S = 0.5
UNKNOWN = 2**64 - 1

PHASES = ("init", "train", "eval", "checkpoint", "end")
INIT, TRAIN, EVAL, CHECKPOINT, END = range(5)

OUTSIDE, WAITING = 0, 1
"""``inside``: WAITING for the next batch since ``since_ns``."""

LOSS_IS_NAN = 1
"""``flags``: the last loss that was told was NaN or infinite."""
LOSS_IS_KNOWN = 2
"""This program tells its loss."""
PEAK_WAS_RESET = 4
"""The program reset the allocator's peak within the interval: ``peak`` is of a part of it."""
STEPS_WERE_DROPPED = 8
"""More steps than the probe keeps: the sums lack some, ``step`` does not."""
ASYNC_ALLOCATOR = 16
"""``backend:cudaMallocAsync``: several of the allocator's figures are always 0."""

ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "JOB_COMPLETION_INDEX",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_CLIENT_MEM_FRACTION",
    "TF_FORCE_GPU_ALLOW_GROWTH",
)
"""What a header's body may hold of the process's environment; each value at most ``VALUE_MOST`` characters."""
VALUE_MOST = 80

HEADER = struct.Struct("<8s4IQ")
SLOT = struct.Struct("<QQQQ II QQ QQ BBH I Q Q 13q d Q II QQ".replace(" ", ""))
PAIRS_AT = 240
PAIRS_MOST = 90
LATER = struct.Struct("<5Q")
LATER_AT = PAIRS_AT + 8 * PAIRS_MOST
"""What the pairs leave free: the last fields of ``Slot``."""
TAIL = struct.Struct("<II")
TAIL_AT = SLOT_SIZE - TAIL.size
_HEADER_CRC = struct.Struct("<I")
_HEADER_CRC_AT = HEADER_SIZE - _HEADER_CRC.size


class Slot(NamedTuple):
    """One report. Sums, maxima and counts are of the interval since the slot before; bytes of the fullest device."""

    seq: int
    """From 1; 0 was never written."""
    wall_ns: int
    mono_ns: int
    step: int
    """Steps since the start, or what the framework counts (which goes on where a checkpoint left off)."""
    steps: int
    """Those of the interval whose duration is known: the sums and maxima are theirs."""
    batches: int
    step_ns: int
    """From one step's end to the next, pauses taken out, data wait included."""
    wait_ns: int
    """The part of ``step_ns`` spent waiting for the next batch."""
    step_max_ns: int
    wait_max_ns: int
    phase: int
    inside: int
    flags: int
    pairs: int
    since_ns: int
    """Monotonic time at which it began to do what ``inside`` says."""
    restart_ns: int
    """Spent starting the loader's workers (its ``__iter__``), within ``step_ns`` but not within ``wait_ns``."""
    device: int
    allocated: int
    peak: int
    floor: int
    """The lowest allocated at the end of a step or before a batch."""
    reserved: int
    reserved_peak: int
    active: int
    inactive_split: int
    retries: int
    """Since the start, as are the next three."""
    ooms: int
    device_alloc: int
    device_free: int
    requested: int
    samples: float
    """Since the start."""
    pause_ns: int
    """In evaluation and checkpoints; not within ``step_ns``."""
    skipped: int
    """Steps that the framework did not apply, for an overflow."""
    eval_batches: int
    forward_ns: int
    """From the batch's arrival to the end of the model's forward, of this interval's steps."""
    h2d_ns: int
    """Copying batches to the device, by its own clock, as far as a framework does it; a few steps stand for all."""
    compiles: int
    """Times that the framework compiled something, since the start."""
    compile_ns: int
    """Spent on it in the interval, within ``step_ns`` where a step made it necessary."""
    beat_ns: int
    """Monotonic time of the last sign of life: a step's end, an evaluation's batch, the start of a checkpoint."""
    background_wait_ns: int
    """Fetches by other threads than the one that steps: of a prefetcher, no wait of the loop's."""
    pause_since_ns: int
    """Monotonic time at which the pause that goes on now began; 0 outside of one."""


_FIRST_LATER = Slot._fields.index("compiles")


def directories(environment: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where a process with this environment writes, the preferred place first."""
    named = environment.get("GPUMON_RUNTIME_DIR")
    session = environment.get("XDG_RUNTIME_DIR")
    places = (named, session and f"{session}/gpumon", f"/run/user/{uid}/gpumon", f"/tmp/gpumon-{uid}")  # noqa: S108
    return tuple(dict.fromkeys(place for place in places if place))


def encode_slot(slot: Slot, pairs: Sequence[tuple[int, int]]) -> bytes:
    """The bytes of one slot; ``pairs`` are (step, wait) in microseconds, the first ``slot.pairs`` of them are kept."""
    raw = bytearray(SLOT_SIZE)
    SLOT.pack_into(raw, 0, *slot[:_FIRST_LATER])
    kept = pairs[: slot.pairs]
    struct.pack_into(f"<{2 * len(kept)}I", raw, PAIRS_AT, *chain.from_iterable(kept))
    LATER.pack_into(raw, LATER_AT, *slot[_FIRST_LATER:])
    TAIL.pack_into(raw, TAIL_AT, zlib.crc32(memoryview(raw)[:TAIL_AT]), slot.seq & 0xFFFFFFFF)
    return bytes(raw)


def decode_slot(raw: bytes) -> Slot | None:
    """The slot in these ``SLOT_SIZE`` bytes; None where none was written, or it is being written, or damaged.

    Only the form is checked: each number is still whatever somebody wrote there.
    """
    if len(raw) != SLOT_SIZE:
        return None
    crc, low = TAIL.unpack_from(raw, TAIL_AT)
    if zlib.crc32(memoryview(raw)[:TAIL_AT]) != crc:
        return None
    slot = Slot(*SLOT.unpack_from(raw), *LATER.unpack_from(raw, LATER_AT))
    return slot if slot.seq and slot.seq & 0xFFFFFFFF == low else None


def decode_pairs(raw: bytes) -> tuple[tuple[int, int], ...]:
    """The (step, wait) microseconds of a slot that ``decode_slot`` took."""
    count = min(struct.unpack_from("<I", raw, 76)[0], PAIRS_MOST)
    return tuple(struct.iter_unpack("<II", raw[PAIRS_AT : PAIRS_AT + 8 * count]))


def encode_header(body: bytes) -> bytes:
    """The header with this body, which must not be longer than ``BODY_MOST``."""
    raw = bytearray(HEADER_SIZE)
    HEADER.pack_into(raw, 0, MAGIC, VERSION, HEADER_SIZE, SLOTS, SLOT_SIZE, len(body))
    raw[BODY_AT : BODY_AT + len(body)] = body
    _HEADER_CRC.pack_into(raw, _HEADER_CRC_AT, zlib.crc32(memoryview(raw)[:_HEADER_CRC_AT]))
    return bytes(raw)


def decode_header(raw: bytes) -> bytes | None:
    """The body of these ``HEADER_SIZE`` bytes; None where they are no header of this version, or damaged."""
    if len(raw) != HEADER_SIZE or _HEADER_CRC.unpack_from(raw, _HEADER_CRC_AT)[0] != zlib.crc32(raw[:_HEADER_CRC_AT]):
        return None
    magic, version, header_size, slots, slot_size, length = HEADER.unpack_from(raw)
    if (magic, version, header_size, slots, slot_size) != (MAGIC, VERSION, HEADER_SIZE, SLOTS, SLOT_SIZE):
        return None
    return raw[BODY_AT : BODY_AT + length] if length <= BODY_MOST else None
