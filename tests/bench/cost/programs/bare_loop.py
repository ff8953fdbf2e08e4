"""The floor of anything that asks the driver from Python: seven values of every GPU a second, one line printed."""

from __future__ import annotations

import sys
import time

import pynvml as n

if __name__ == "__main__":
    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(index) for index in range(n.nvmlDeviceGetCount())]
    while True:
        for handle in handles:
            rates = n.nvmlDeviceGetUtilizationRates(handle)
            memory = n.nvmlDeviceGetMemoryInfo(handle)
            power = n.nvmlDeviceGetPowerUsage(handle)
            energy = n.nvmlDeviceGetTotalEnergyConsumption(handle)
            temperature = n.nvmlDeviceGetTemperature(handle, n.NVML_TEMPERATURE_GPU)
            clock = n.nvmlDeviceGetClockInfo(handle, n.NVML_CLOCK_SM)
            reasons = n.nvmlDeviceGetCurrentClocksEventReasons(handle)
        sys.stdout.write(f"\rready {rates.gpu} {memory.used} {power} {energy} {temperature} {clock} {reasons}")
        sys.stdout.flush()
        time.sleep(1)
