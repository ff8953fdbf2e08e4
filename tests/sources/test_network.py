"""Limits of the network, RDMA ports and NFS times, exact from a /proc and /sys that are written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from proctree import FakeProc

from gpumon.sources.host.network import Network, NetworkReader, nfs_reads

MOUNTSTATS = """device /dev/sda1 mounted on / with fstype ext4
device nas:/data mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {reads} {reads} 0 1000 90000 40 {rtt} 70 0
\t       WRITE: 9 9 0 10 10 900 900 900 0
device nas:/home mounted on /home with fstype nfs statvers=1.1
\tper-op statistics
\t        READ: 10 10 0 1000 90000 40 20 70 0
"""


def port(fake: FakeProc, device: str, *, rx: int, tx: int, state: str = "4: ACTIVE") -> None:
    base = f"../sys/class/infiniband/{device}/ports/1"
    fake.write(f"{base}/state", f"{state}\n")
    fake.write(f"{base}/rate", "100 Gb/sec (4X EDR)\n")
    fake.write(f"{base}/counters/port_rcv_data", f"{rx}\n")
    fake.write(f"{base}/counters/port_xmit_data", f"{tx}\n")


def nic(fake: FakeProc, name: str, speed: str, state: str = "up") -> None:
    fake.write(f"../sys/class/net/{name}/speed", f"{speed}\n")
    fake.write(f"../sys/class/net/{name}/operstate", f"{state}\n")


def test_rates_and_limits(tmp_path: Path) -> None:
    """RDMA counts words of four bytes over all active ports; a READ's time is the growth of both counters."""
    fake = FakeProc(tmp_path)
    port(fake, "mlx5_0", rx=1000, tx=0)
    port(fake, "mlx5_1", rx=0, tx=0)
    port(fake, "mlx5_2", rx=0, tx=0, state="1: DOWN")
    nic(fake, "eth0", "25000")
    nic(fake, "eth1", "-1", state="down")
    fake.write("self/mountstats", MOUNTSTATS.format(reads=100, rtt=500))
    reader = NetworkReader(str(fake.proc), str(fake.sys))
    first = reader.read(100.0, ("eth0", "eth1"))
    port(fake, "mlx5_0", rx=1000 + 5_000_000, tx=10_000_000)
    fake.write("self/mountstats", MOUNTSTATS.format(reads=150, rtt=1500))
    assert reader.read(102.0, ("eth0", "eth1")) == first
    second = reader.read(105.0, ("eth0", "eth1"))
    assert first == Network(net_limit_bytes_per_s=25e9 / 8, rdma_limit_bytes_per_s=25e9)
    assert second.rdma_rx_bytes_per_s == pytest.approx(4e6)
    assert second.rdma_tx_bytes_per_s == pytest.approx(8e6)
    assert second.nfs_read_s == pytest.approx(0.020)


def test_no_reads_have_no_mean_time(tmp_path: Path) -> None:
    """Without a READ in between, or after a remount, there is no time to report."""
    fake = FakeProc(tmp_path)
    reader = NetworkReader(str(fake.proc), str(fake.sys))
    for now, reads in ((100.0, 100), (105.0, 100), (110.0, 20)):
        fake.write("self/mountstats", MOUNTSTATS.format(reads=reads, rtt=500))
        assert reader.read(now, ()).nfs_read_s is None


def test_a_machine_without_any_of_it(tmp_path: Path) -> None:
    """Everything is None."""
    fake = FakeProc(tmp_path)
    reader = NetworkReader(str(fake.proc), str(fake.sys))
    assert reader.read(100.0, ("lo",)) == reader.read(110.0, ()) == Network()


def test_an_interface_that_hides_its_speed_hides_the_sum(tmp_path: Path) -> None:
    """With a wireless interface up, what the network can carry is unknown."""
    fake = FakeProc(tmp_path)
    nic(fake, "eth0", "1000")
    nic(fake, "wlan0", "")
    reader = NetworkReader(str(fake.proc), str(fake.sys))
    assert reader.read(100.0, ("eth0", "wlan0")).net_limit_bytes_per_s is None
    assert nfs_reads(b"READ: x\nREAD: 1 2\n") == (None, None)
