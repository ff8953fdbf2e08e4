"""What each of the driver's Xid numbers means, whose fault it mostly is, and what NVIDIA's catalogue says to do.

The buckets are those of NVIDIA's Xid catalogue. Whether a code is the program's own doing follows NVIDIA's device
plugin for Kubernetes, which leaves GPUs with 13, 31, 43, 45, 68 and 109 in service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpumon.model import Severity

Blame = Literal["program", "hardware", "driver", "either", "nobody"]
Action = Literal[
    "restart-program",
    "ignore",
    "monitor",
    "finish-then-reset",
    "reset",
    "reboot",
    "check-power",
    "nvlink",
    "memory-error",
    "update",
    "support",
    "restart-vm",
    "read-text",
]


Which = int | str | None
"""A GPU as nvidia-smi takes it after ``-i``: its index, or its address."""


class Xid(NamedTuple):
    """One number."""

    code: int
    meaning: str
    """Short, as it follows ``GPU 3: ``."""
    blame: Blame
    action: Action
    severity: Severity


def _same(
    codes: tuple[int, ...] | range, meaning: str, blame: Blame, action: Action, severity: Severity
) -> list[tuple[int, Xid]]:
    return [(code, Xid(code, meaning, blame, action, severity)) for code in codes]


XIDS: Mapping[int, Xid] = dict(
    [
        *_same((1, 2, 3, 4, 5, 6, 7), "corrupt command stream", "either", "restart-program", "warning"),
        *_same((8,), "stopped processing (timeout)", "either", "restart-program", "warning"),
        *_same((9, 12), "driver error", "driver", "ignore", "info"),
        *_same((11, 25, 32, 80), "corrupt command stream", "program", "restart-program", "warning"),
        *_same((13,), "illegal address or instruction", "program", "restart-program", "warning"),
        *_same((16, 19, 24, 26, 33, 59), "controller error (old card)", "driver", "support", "warning"),
        *_same((18,), "PCIe mastering switched off", "driver", "reboot", "critical"),
        *_same((31,), "illegal memory access", "program", "restart-program", "warning"),
        *_same(
            (34, 35, 36, 42, 47, 60, 68, 69, 82, 83, 96, 97),
            "engine or class error",
            "program",
            "restart-program",
            "warning",
        ),
        *_same((37, 38), "driver firmware error", "driver", "ignore", "info"),
        *_same((39, 40, 41, 70, 71, 72, 75, 76, 77), "copy engine error", "either", "restart-program", "warning"),
        *_same((43,), "reset after a program's fault", "program", "restart-program", "warning"),
        *_same((44, 66, 67), "fault while switching context", "driver", "ignore", "info"),
        *_same((45,), "clean-up of a channel", "nobody", "ignore", "info"),
        *_same((46,), "stopped processing", "hardware", "reset", "critical"),
        *_same((48,), "uncorrectable memory error", "hardware", "memory-error", "critical"),
        *_same((54,), "power cable missing", "hardware", "check-power", "critical"),
        *_same(
            (55, 56, 57, 58, 65, 81, 122, 123, 125),
            "controller error",
            "hardware",
            "support",
            "critical",
        ),
        *_same((61,), "microcontroller breakpoint", "hardware", "reset", "critical"),
        *_same((62,), "microcontroller halt", "hardware", "reset", "critical"),
        *_same((63,), "memory row remapped", "nobody", "finish-then-reset", "info"),
        *_same((64,), "memory row remap failed", "hardware", "reset", "critical"),
        *_same((73, 84, 85, 86, 88, 89), "video engine error", "program", "restart-program", "warning"),
        *_same((74,), "NVLink error", "hardware", "nvlink", "critical"),
        *_same((78,), "virtual GPU did not start", "driver", "update", "warning"),
        *_same((79,), "fell off the bus", "hardware", "reboot", "critical"),
        *_same((92,), "many corrected memory errors", "nobody", "monitor", "info"),
        *_same((93,), "settings memory is worn", "nobody", "ignore", "info"),
        *_same((94,), "contained memory error", "hardware", "restart-program", "critical"),
        *_same((95,), "uncontained memory error", "hardware", "reset", "critical"),
        *_same((98, 99, 100, 101, 102, 103, 104, 105), "image engine error", "program", "restart-program", "warning"),
        *_same((106, 107), "test message", "nobody", "ignore", "info"),
        *_same((109,), "context switch timed out", "either", "restart-program", "warning"),
        *_same((110,), "security fault", "hardware", "reset", "critical"),
        *_same((119, 120), "its firmware does not answer", "driver", "reset", "critical"),
        *_same((121,), "chip-to-chip link error", "driver", "ignore", "info"),
        *_same((136,), "link training failed", "hardware", "nvlink", "critical"),
        *_same((137,), "illegal access over NVLink", "program", "restart-program", "warning"),
        *_same((140,), "unrecovered memory error", "hardware", "reset", "critical"),
        *_same((141,), "CUDA fast path error", "driver", "ignore", "info"),
        *_same((143,), "did not initialise", "hardware", "reset", "critical"),
        *_same(range(144, 151), "NVLink error", "hardware", "nvlink", "critical"),
        *_same((151,), "key rotation failed", "driver", "restart-vm", "warning"),
        *_same((154,), "recovery action changed", "nobody", "read-text", "info"),
        *_same((155,), "NVLink error", "hardware", "nvlink", "critical"),
        *_same((156,), "a resource was retired", "hardware", "reset", "critical"),
        *_same((157,), "resource retirement failed", "hardware", "support", "critical"),
        *_same((158,), "fatal timeout", "hardware", "reset", "critical"),
        *_same(range(159, 166), "housekeeping", "nobody", "ignore", "info"),
        *_same((167,), "PCIe fatal timeout", "hardware", "reboot", "critical"),
        *_same((171, 172), "uncorrectable memory error", "hardware", "memory-error", "critical"),
    ]
)

ROOTS = (48, 171, 172, 94, 95, 140, 79, 167, 119, 120, 62, 61, 74, *range(144, 151), 155, 13, 31)
"""Of several numbers at a time these began it; the others follow from them."""

RECOVERY = {
    1: "a reset",
    2: "a reboot",
    3: "a stop of peer-to-peer jobs",
    4: "drain and reset",
    5: "recovery of its IMEX domain",
    6: "a bus reset",
    7: "a system reboot",
}
"""What the driver asks for by NVML's recovery actions, in plain words."""

RECOVERY_ACTIONS: Mapping[int, Action] = {1: "reset", 2: "reboot", 4: "reset", 6: "reset", 7: "reboot"}
"""What is to be done for it, where that is not the text's own business."""


def known(code: int) -> Xid:
    """The number's entry; one that NVIDIA has added since is a warning for support."""
    return XIDS.get(code) or Xid(code, "error unknown to gpumon", "either", "support", "warning")


def reset_command(which: Which) -> str:
    """Resets one GPU."""
    return "nvidia-smi --gpu-reset" + ("" if which is None else f" -i {which}")


def fix_of(xid: Xid, which: Which) -> str:
    """For the headline."""
    gpu = "the GPU" if which is None else f"GPU {which}"
    return {
        "restart-program": "look at its own error, restart it" if xid.blame != "hardware" else "restart the job",
        "ignore": "nothing, unless it repeats",
        "monitor": "nothing now; watch it",
        "finish-then-reset": f"finish the job, then reset {gpu}",
        "reset": f"stop its jobs, reset {gpu}",
        "reboot": "save what you can, reboot the node",
        "check-power": f"plug in the power cables of {gpu}",
        "nvlink": "stop its jobs, reset; check the links",
        "memory-error": f"stop its jobs, reset {gpu}",
        "update": "update driver and software together",
        "support": "stop using it, report it with nvidia-bug-report.sh",
        "restart-vm": "restart the virtual machine",
        "read-text": "do what the driver's line says",
    }[xid.action]


def fixes_of(xid: Xid, which: Which) -> tuple[str, ...]:
    """All that there is to do, in order."""
    reset = f"stop its jobs, then {reset_command(which)}"
    again = "if it comes back: cables, riser, heat; then return the card (nvidia-bug-report.sh)"
    found: dict[Action, tuple[str, ...]] = {
        "restart-program": (
            "run the program once under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1, to see the line at fault",
            "restart it from its last checkpoint",
            f"if other programs fail on this GPU too: dcgmi diag -r 3{'' if which is None else f' -i {which}'}",
        ),
        "ignore": ("nothing now; if it repeats, report it with nvidia-bug-report.sh",),
        "monitor": ("nothing now: the GPU still works", "if the number keeps growing: report it"),
        "finish-then-reset": ("let the job finish: the row is already replaced", f"then {reset_command(which)}"),
        "reset": (reset, again),
        "reboot": ("save what the host still holds", "dmesg | grep -i nvrm", "reboot the node", again),
        "check-power": ("power off and plug in every power cable of the card", "then reboot"),
        "nvlink": (
            "nvidia-smi nvlink -s; nvidia-smi nvlink -e",
            reset,
            "if it comes back: reseat bridge or board, check the fabric manager, report the node",
        ),
        "memory-error": (reset, "if Xid 64 follows or it comes back within a month: return the card"),
        "update": ("install matching versions of host driver, guest driver and CUDA",),
        "support": ("dmesg | grep -i nvrm", "report it with nvidia-bug-report.sh, and use another GPU until then"),
        "restart-vm": ("restart the virtual machine",),
        "read-text": ("dmesg | grep -i nvrm", "do what the line says: reset, drain or reboot"),
    }
    if xid.code == 94:
        return (
            "restart the job that was hit: others go on unharmed",
            f"when convenient: {reset_command(which)}",
            again,
        )
    if xid.code in (119, 120):
        return (
            reset,
            "if that hangs as well: reboot the node",
            "if it comes back: a newer driver; with NVIDIA's own modules also nvidia.NVreg_EnableGpuFirmware=0",
        )
    if xid.action == "restart-program" and xid.blame == "either":
        return ("restart the program", *found["restart-program"][2:], reset)
    return found[xid.action]


def command_of(xid: Xid, which: Which) -> str | None:
    """The command among them, where there is one that helps at once."""
    if xid.action in ("reset", "memory-error", "finish-then-reset"):
        return reset_command(which)
    if xid.action == "nvlink":
        return "nvidia-smi nvlink -s"
    return "dmesg | grep -i nvrm" if xid.action in ("reboot", "support", "read-text") else None
