"""What kind of machine this is: laptop, desktop, server or virtual, and how many processors it has."""

from __future__ import annotations

from gpumon.sources.host.procfs import list_names, read

# System Management BIOS, table 17 (chassis types).
_LAPTOP = frozenset((8, 9, 10, 11, 14, 30, 31, 32))
_DESKTOP = frozenset((3, 4, 5, 6, 7, 13, 15, 16, 24, 34, 35, 36))
_SERVER = frozenset((17, 23, 25, 28, 29))
_VIRTUAL_VENDORS = tuple(b"QEMU VMware Xen innotek Parallels Bochs Amazon Google OpenStack".split())


def chassis_of(proc: str, sys: str) -> str | None:
    """Name the kind of machine, None where neither firmware nor processor tells."""
    # The first processor's flags are near the top; the whole file takes milliseconds on large machines.
    begin = (read(f"{proc}/cpuinfo", 4096) or b"").replace(b"\n", b" ")
    vendor = read(f"{sys}/class/dmi/id/sys_vendor") or b""
    product = read(f"{sys}/class/dmi/id/product_name") or b""
    if b" hypervisor " in begin or (vendor.startswith(_VIRTUAL_VENDORS) and b"metal" not in product):
        return "virtual"
    number = read(f"{sys}/class/dmi/id/chassis_type") or b""
    kind = int(number) if number.strip().isdigit() else 0
    for kinds, name in ((_LAPTOP, "laptop"), (_DESKTOP, "desktop"), (_SERVER, "server")):
        if kind in kinds:
            return name
    return "laptop" if _has_battery(sys) else None


def _has_battery(sys: str) -> bool:
    return any(name.startswith("BAT") for name in list_names(f"{sys}/class/power_supply"))


def socket_count(sys: str) -> int | None:
    """Count the processor packages by walking from package to package, not from core to core."""
    base = f"{sys}/devices/system/cpu"
    left = _listed(read(f"{base}/online"))
    count = 0
    while left:
        cpu = min(left)
        topology = f"{base}/cpu{cpu}/topology"
        # Older kernels call the same list core_siblings.
        siblings = read(f"{topology}/package_cpus_list") or read(f"{topology}/core_siblings_list")
        if not siblings:
            return None
        left -= _listed(siblings) | {cpu}
        count += 1
    return count or None


def _listed(data: bytes | None) -> set[int]:
    members: set[int] = set()
    try:
        for part in (data or b"").decode("ascii", "replace").strip().split(","):
            if part:
                ends = part.split("-")
                members.update(range(int(ends[0]), int(ends[-1]) + 1))
    except ValueError:
        return set()
    return members
