"""Other people's processes on a simulated machine: on its cards, in its memory."""

from __future__ import annotations

import msgspec

from gpumon.model import Process
from gpumon.sources.simulator.card import Card


class Stranger(msgspec.Struct, kw_only=True):
    """A process of somebody else that works, or only sits, on a card."""

    pid: int
    user: str
    command: str
    card: Card
    held_bytes: int
    sm_share: float = 0.0
    """Of the card's time."""
    cpu_pct: float = 100.0
    role: str = "trainer"
    framework: str | None = "torch"
    started_s: float = 0.0
    rss_bytes: int = 4 << 30

    def arrive(self, now_s: float) -> None:
        """Take memory and time from the card."""
        self.started_s = now_s
        self.card.slices[0].holders[self.pid] = self.held_bytes

    def leave(self) -> None:
        """Give both back."""
        self.card.slices[0].holders.pop(self.pid, None)

    def read(self, epoch_s: float, *, has_rates: bool) -> Process:
        """As /proc shows it."""
        return Process(
            pid=self.pid,
            ppid=1,
            session_id=self.pid,
            started_s=round(epoch_s + self.started_s, 2),
            user=self.user,
            name="python",
            command=self.command,
            state="R" if self.sm_share else "S",
            gpu_memory_bytes={self.card.uuid: self.held_bytes},
            gpu_sm_pct={self.card.uuid: round(100.0 * self.sm_share)},
            open_gpus=(self.card.uuid,),
            cpu_pct=self.cpu_pct if has_rates else None,
            main_thread_cpu_pct=min(99.0, self.cpu_pct) if has_rates else None,
            main_thread_state=("R" if self.cpu_pct > 50 else "S") if has_rates else None,
            run_delay_pct=0.2 if has_rates else None,
            disk_wait_pct=0.0 if has_rates else None,
            read_bytes_per_s=0.0 if has_rates else None,
            write_bytes_per_s=0.0 if has_rates else None,
            rchar_bytes_per_s=2e4 if has_rates else None,
            memory_rss_bytes=self.rss_bytes,
            memory_pss_bytes=self.rss_bytes,
            role=self.role,  # type: ignore[arg-type]
            framework=self.framework,
            libraries=("libtorch_cuda", "libcudnn") if self.framework == "torch" else (),
            environment={},
        )
