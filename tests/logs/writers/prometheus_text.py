"""Writes snapshots as scrapes of dcgm-exporter, with the names before 4.9 and a timestamp on each line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpumon.model import Gpu, Snapshot

_MIB = 1024**2
_BITS = "gpu_idle app_clocks sw_power_cap hw_slowdown sync_boost sw_thermal hw_thermal hw_power_brake display_clock"
_FAMILIES: Mapping[str, tuple[str, float]] = {
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_MAX_SM_CLOCK": ("sm_clock_max_mhz", 1.0),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_mhz", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_c", 1.0),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": ("temperature_slowdown_c", 1.0),
    "DCGM_FI_DEV_GPU_MAX_OP_TEMP": ("temperature_max_c", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("power_limit_w", 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": ("power_default_limit_w", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 1e-3),
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_pct", 1.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_utilization_pct", 1.0),
    "DCGM_FI_DEV_ENC_UTIL": ("encoder_pct", 1.0),
    "DCGM_FI_DEV_DEC_UTIL": ("decoder_pct", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", _MIB),
    "DCGM_FI_DEV_FB_TOTAL": ("memory_total_bytes", _MIB),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie_replays", 1.0),
    "DCGM_FI_DEV_PCIE_LINK_GEN": ("pcie_gen", 1.0),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": ("pcie_width", 1.0),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": ("pcie_gen_max", 1.0),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": ("pcie_width_max", 1.0),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_corrected", 1.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_uncorrected", 1.0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows_uncorrected", 1.0),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("remapped_rows_corrected", 1.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("graphics_active_pct", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_pct", 100.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("sm_occupancy_pct", 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_pct", 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_pct", 100.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("fp32_active_pct", 100.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("fp64_active_pct", 100.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_s", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", 1.0),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_s", 1.0),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_per_s", 1.0),
}


_OF_INSTANCES = frozenset(
    "memory_used_bytes memory_total_bytes graphics_active_pct sm_active_pct sm_occupancy_pct tensor_active_pct"
    " dram_active_pct fp32_active_pct fp64_active_pct".split()
)
_COUNTERS: Mapping[str, str] = {
    "sw_power_cap": "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
    "sync_boost": "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS",
    "sw_thermal": "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
    "hw_thermal": "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
    "hw_power_brake": "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
}


def log(snapshots: Iterable[Snapshot]) -> str:
    """One scrape after the other."""
    throttled_ns: dict[tuple[str, str], float] = {}
    xids: dict[str, int] = {}
    return "".join(line for snapshot in snapshots for line in _scrape(snapshot, throttled_ns, xids))


def _scrape(snapshot: Snapshot, throttled_ns: dict[tuple[str, str], float], xids: dict[str, int]) -> Iterator[str]:
    at_ms = round(snapshot.time_s * 1e3)
    parents = {gpu.uuid: gpu for gpu in snapshot.gpus}
    gpus = [gpu for gpu in snapshot.gpus if gpu.mig_parent_uuid is None and not gpu.is_lost]
    for name, (field, factor) in _FAMILIES.items():
        values = [
            (gpu, getattr(gpu, field))
            for gpu in snapshot.gpus
            if gpu in gpus or (gpu.mig_parent_uuid is not None and field in _OF_INSTANCES)
        ]
        yield from _family(name, [(gpu, value / factor) for gpu, value in values if value is not None], at_ms, parents)
    masks = [
        (gpu, float(sum(1 << bit for bit, name in enumerate(_BITS.split()) if name in gpu.clocks_event_reasons)))
        for gpu in gpus
        if gpu.clocks_event_reasons is not None
    ]
    yield from _family("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", masks, at_ms)
    for reason, name in _COUNTERS.items():
        for gpu in gpus:
            share = (gpu.throttled_pct or {}).get(reason)
            if share is not None:
                passed_ns = 1e7 * share * (snapshot.interval_s or 0.0)
                throttled_ns[gpu.uuid, reason] = throttled_ns.get((gpu.uuid, reason), 0.0) + passed_ns
        grown = [(gpu, throttled_ns[gpu.uuid, reason]) for gpu in gpus if (gpu.uuid, reason) in throttled_ns]
        yield from _family(name, grown, at_ms)
    for event in snapshot.events:
        if event.xid is not None and event.gpu_uuid is not None:
            xids[event.gpu_uuid] = event.xid
    boards = [gpu for gpu in snapshot.gpus if gpu.mig_parent_uuid is None]
    yield from _family("DCGM_FI_DEV_XID_ERRORS", [(gpu, float(xids.get(gpu.uuid, 0))) for gpu in boards], at_ms)


def _family(
    name: str, values: list[tuple[Gpu, float]], at_ms: int, parents: Mapping[str, Gpu] | None = None
) -> Iterator[str]:
    if values:
        yield f"# HELP {name} {name}.\n# TYPE {name} gauge\n"
    for gpu, value in values:
        parent = (parents or {}).get(gpu.mig_parent_uuid or "", gpu)
        model = (parent.name or "NVIDIA").replace("\\", "\\\\").replace('"', '\\"')
        labels = f'gpu="{parent.index}",UUID="{parent.uuid}",device="nvidia{parent.index}",modelName="{model}"'
        if parent is not gpu:
            labels += f',GPU_I_PROFILE="{gpu.mig_profile}",GPU_I_ID="{gpu.index}"'
        yield f"{name}{{{labels}}} {value!r} {at_ms}\n"
