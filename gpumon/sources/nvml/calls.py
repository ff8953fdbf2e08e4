"""Knows what each NVML return code means for the GPU that was asked, and which calls a GPU cannot answer."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pynvml

from gpumon.text import clean

REFUSED_S = 60.0
"""A call that is not supported or not permitted is asked again this rarely: drivers change under a long run."""
UNCLEAR_S = 10.0
"""The same for a call that answered "unknown error" on a GPU that is otherwise well."""

_REFUSALS = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_CORRUPTED_INFOROM,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
_LOSSES = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND})
DEPARTURES = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""The driver no longer knows us."""
_UNCLEAR = frozenset(
    {
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_IRQ_ISSUE,
        pynvml.NVML_ERROR_OPERATING_SYSTEM,
        pynvml.NVML_ERROR_UNKNOWN,
    }
)


class GpuLost(Exception):
    """The driver says that this GPU is gone or must be reset."""


class DriverGone(Exception):
    """The driver no longer knows us: unloaded, restarted or replaced. Its argument is NVML's code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Asker:
    """Asks one device; each failure is that call's own, unless it says that the GPU or the driver is gone.

    "Unknown error" condemns nothing by itself: drivers give it for single informational fields of healthy GPUs. Only
    when all *vital* calls of a pass fail, and at least one of them so, is the device called silent.
    """

    __slots__ = ("_vital_answers", "_vital_doubts", "handle", "now", "refusals")

    def __init__(self, handle: object) -> None:
        self.handle = handle
        self.now = 0.0
        self.refusals: dict[str, tuple[float, int]] = {}
        """Call -> (monotonic time until which it is not asked, NVML's code)."""
        self._vital_answers = 0
        self._vital_doubts = 0

    def begin(self, now: float) -> None:
        """Start a pass over the device."""
        self.now = now
        self._vital_answers = self._vital_doubts = 0

    def is_silent(self) -> bool:
        """No vital call of this pass was answered, and not for want of support."""
        return not self._vital_answers and self._vital_doubts > 0

    def __call__(self, name: str, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml's
        """The answer, or None."""
        refusal = self.refusals.get(name)
        if refusal is not None and self.now < refusal[0]:
            return None
        try:
            answer = call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            code: int = error.value
        else:
            if refusal is not None:
                del self.refusals[name]
            return answer
        self.judge(name, code)
        return None

    def vital(self, name: str, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - pynvml's
        """The answer, or None; counts as a sign of life."""
        refusal = self.refusals.get(name)
        if refusal is not None and self.now < refusal[0] and refusal[1] not in _UNCLEAR:
            return None
        try:
            answer = call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            code: int = error.value
        else:
            self._vital_answers += 1
            return answer
        self._vital_doubts += code in _UNCLEAR
        self.judge(name, code)
        return None

    def judge(self, name: str, code: int) -> None:
        """Remember a refusal. Raises GpuLost or DriverGone where the code says so."""
        if code in _REFUSALS:
            self.refusals[name] = (self.now + REFUSED_S, code)
        elif code in _UNCLEAR:
            self.refusals[name] = (self.now + UNCLEAR_S, code)
        elif code in _LOSSES:
            raise GpuLost
        elif code in DEPARTURES:
            raise DriverGone(code)

    def text(self, name: str, call: Callable[..., Any], *arguments: object) -> str | None:
        """A string that is safe to show, or None."""
        try:
            answer = self(name, call, *arguments)
        except UnicodeDecodeError as error:  # WSL drivers gave garbage here; pynvml decodes strictly
            answer = error.object
        return None if answer is None else clean(answer)


def c_function(name: str) -> Callable[..., int]:
    """A function of the loaded library: for the calls where pynvml asks twice or copies slowly."""
    try:
        function: Callable[..., int] = getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
    return function


class Question:
    """A call that writes its answer into the same memory every time: for what is asked of one device all the time.

    To be given to an ``Asker``. The answer is good until the question is asked again.
    """

    __slots__ = ("_answer", "_arguments", "_function")

    def __init__(self, function: str, answer: Any, *arguments: object) -> None:  # noqa: ANN401 - ctypes
        """``answer`` is the function's last parameter, ``arguments`` what stands between it and the device."""
        self._function = function
        self._answer = answer
        self._arguments = (*arguments, ctypes.byref(answer))

    def __call__(self, handle: object) -> Any:  # noqa: ANN401 - ctypes
        """The memory with the answer in it."""
        code = c_function(self._function)(handle, *self._arguments)
        if code != 0:
            raise pynvml.NVMLError(code)
        return self._answer


class Records:
    """Room for records of one C layout, read all at once: ctypes takes a microsecond for each of their members."""

    __slots__ = ("_bytes", "_layout", "address", "room")

    def __init__(self, layout: struct.Struct, room: int) -> None:
        self.room = room
        self._layout = layout
        self._bytes = bytearray(layout.size * room)
        self.address = (ctypes.c_char * len(self._bytes)).from_buffer(self._bytes)
        """What a function of the library takes."""

    def put(self, number: int, *members: float | bytes) -> None:
        """Write one of them."""
        self._layout.pack_into(self._bytes, number * self._layout.size, *members)

    def first(self, count: int) -> Iterator[tuple[Any, ...]]:
        """The members of the first so many."""
        return self._layout.iter_unpack(memoryview(self._bytes)[: count * self._layout.size])


_FIELD_VALUE = struct.Struct("@IIqqII8s")
"""nvmlFieldValue_t: field, scope, time stamp, latency, type of the value, NVML's code, value."""
_VALUES = tuple(struct.Struct(layout).unpack for layout in ("@d", "@I4x", "@L", "@Q", "@q", "@i4x", "@H6x"))
"""Readers of the value, by NVML's number of its type."""


class Fields:
    """Field values of one device, asked in one call; a field it cannot answer is left out for a while."""

    def __init__(self, name: str, wanted: Sequence[int | tuple[int, int]]) -> None:
        """Each wanted field is an id, or an id and a scope (the number of a link)."""
        self._name = name
        self._wanted = tuple(field if isinstance(field, tuple) else (field, 0) for field in wanted)
        self._asked: Sequence[tuple[int, int]] = ()
        self._request = Records(_FIELD_VALUE, 0)
        self._again_at = 0.0
        self._spared: set[int] = set()

    def read(self, asker: Asker) -> dict[int, float]:
        """Values by field id, plus 65,536 times the scope where there is one."""
        if asker.now >= self._again_at:
            self._ask_for(self._wanted)
            self._again_at = asker.now + REFUSED_S
        if not self._asked or asker(self._name, self._call) is None:
            return {}
        values: dict[int, float] = {}
        refused: set[tuple[int, int]] = set()
        for field, scope, _, _, kind, code, value in self._request.first(len(self._asked)):
            if code == 0:
                values[field + (scope << 16)] = _VALUES[kind](value)[0]
            else:
                asker.judge(f"field {field}", code)
                if code in _REFUSALS or code in _UNCLEAR:
                    refused.add((field, scope))
        if refused:
            self._ask_for([field for field in self._asked if field not in refused])
        return values

    def spare(self, *field_ids: int) -> None:
        """Ask no longer for fields that a better source has replaced."""
        if self._spared.issuperset(field_ids):
            return
        self._spared.update(field_ids)
        self._wanted = tuple(field for field in self._wanted if field[0] not in self._spared)
        self._again_at = 0.0

    def _ask_for(self, fields: Sequence[tuple[int, int]]) -> None:
        self._asked = fields
        self._request = Records(_FIELD_VALUE, len(fields))
        for number, (field, scope) in enumerate(fields):
            self._request.put(number, field, scope, 0, 0, 0, 0, b"")

    def _call(self, handle: object) -> bool:
        code = c_function("nvmlDeviceGetFieldValues")(handle, ctypes.c_int(len(self._asked)), self._request.address)
        if code != 0:
            raise pynvml.NVMLError(code)
        return True
