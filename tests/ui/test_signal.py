"""Signalling a process: the right one, only one's own, and only after asking."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from builders import frame, snapshots, uuid
from gpumon.model import Process
from gpumon.monitor import Frame
from gpumon.signalling import SignalRefused, Target, obstacle
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.signal import SignalScreen
from gpumon.ui.view import ViewState
from ui.stage import play, text


def started_s(pid: int) -> float:
    """Start of a process as the kernel tells it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    return float(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of our own that waits."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def seen(child: subprocess.Popen[bytes], **changes: object) -> Process:
    """The child as a sample would show it."""
    fields: dict[str, object] = {"pid": child.pid, "started_s": started_s(child.pid), "user": "ana", **changes}
    return Process(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_the_chosen_signal_ends_the_process(child: subprocess.Popen[bytes], name: str) -> None:
    """Each of the three signals reaches the process that was seen."""
    time.sleep(0.3)  # SIGINT before Python installs its handler ends it as well, but by another status
    with Target(seen(child)) as target:
        target.send(name)  # type: ignore[arg-type]
    assert child.wait(10) in {-signal.Signals[name], 1}


def test_a_changed_start_time_is_refused(child: subprocess.Popen[bytes]) -> None:
    """A pid whose process started at another time than the one seen is never signalled."""
    with pytest.raises(SignalRefused, match="is another process now"):
        Target(seen(child, started_s=started_s(child.pid) - 60))
    assert child.poll() is None


def test_an_unknown_start_time_is_refused(child: subprocess.Popen[bytes]) -> None:
    """Without a start time the process cannot be told from another."""
    with pytest.raises(SignalRefused, match=r"start of .* is not known"):
        Target(seen(child, started_s=None))


def test_another_uid_is_refused_by_name(child: subprocess.Popen[bytes]) -> None:
    """Processes of others are refused even where the kernel would allow it (root)."""
    with pytest.raises(SignalRefused, match="belongs to ana"):
        Target(seen(child), own_uid=os.geteuid() + 1)
    assert child.poll() is None


def test_a_process_that_ended_in_between_is_not_hit_by_its_number(child: subprocess.Popen[bytes]) -> None:
    """The pidfd stays with the process seen: after its end the signal is refused, whoever has the pid."""
    target = Target(seen(child))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(SignalRefused, match=r"has ended \(zombie\)"):
        target.send("SIGTERM")
    child.wait()
    with pytest.raises(SignalRefused, match="has ended"):
        target.send("SIGTERM")
    target.close()


def test_a_pid_that_does_not_exist_is_refused(child: subprocess.Popen[bytes]) -> None:
    """A process that is gone when the dialog opens is named as ended."""
    process = seen(child)
    child.kill()
    child.wait()
    with pytest.raises(SignalRefused, match=f"{child.pid} has ended"):
        Target(process)


@pytest.mark.parametrize("pid", [0, 1, -5])
def test_init_and_process_groups_are_never_targets(pid: int) -> None:
    """Numbers that mean groups, everyone or init are refused before anything is read."""
    with pytest.raises(SignalRefused):
        Target(Process(pid=pid, started_s=1.0))


def test_signals_are_off_where_they_make_no_sense() -> None:
    """Read-only mode, the demo and a replay each say why no signal is sent."""
    assert obstacle("live", read_only=False) is None
    assert obstacle("live", read_only=True) == "signals are off: --read-only"
    assert obstacle("demo", read_only=False) == "a simulated process cannot be signalled"
    assert obstacle("replay", read_only=False) == "a recorded process cannot be signalled"


def live(*shown: Process) -> Frame:
    """A live frame with these processes on GPU 0."""
    return frame(snapshots(30, processes=shown, start_s=time.time() - 30), kind="live")


def on_gpu(child: subprocess.Popen[bytes], **changes: object) -> Process:
    """The child as a process that holds GPU memory."""
    return seen(child, gpu_memory_bytes={uuid(0): 1 << 30}, name="train", command="python [red]train[/].py", **changes)


def test_the_dialog_names_the_process_and_cancels_by_default(child: subprocess.Popen[bytes]) -> None:
    """K shows pid, user, start and command as text; Enter on the default sends nothing."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("K")
        joined = "\n".join(text(app))
        assert f" pid {child.pid}  user ana  started " in joined
        assert "python [red]train[/].py" in joined
        assert "›Cancel    SIGTERM    SIGINT    SIGKILL" in joined
        await pilot.press("enter")
        assert type(app.screen).__name__ == "Overview"

    play(live(on_gpu(child)), story)
    assert child.poll() is None


def test_sigterm_is_one_key_further_and_ends_the_process(child: subprocess.Popen[bytes]) -> None:
    """Right, Enter: the process ends, and the headline's second row says what was sent."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("f9", "right", "enter")
        assert f" SIGTERM sent to {child.pid} train" in text(app)[2]

    play(live(on_gpu(child)), story)
    assert child.wait(10) == -signal.SIGTERM


def test_escape_sends_nothing(child: subprocess.Popen[bytes]) -> None:
    """Esc leaves the question whatever is chosen."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("K", "right", "right", "right", "escape")
        assert type(app.screen).__name__ == "Overview"

    play(live(on_gpu(child)), story)
    assert child.poll() is None


def test_a_process_that_is_another_one_now_is_refused_in_words(child: subprocess.Popen[bytes]) -> None:
    """With another start time the dialog offers Cancel only and says why."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("K")
        joined = "\n".join(text(app))
        assert f"not possible: {child.pid} is another process now" in joined
        assert "SIGTERM" not in joined
        await pilot.press("right", "enter")

    play(live(on_gpu(child, started_s=started_s(child.pid) - 60)), story)
    assert child.poll() is None


def test_a_process_of_another_user_is_refused_in_words(child: subprocess.Popen[bytes]) -> None:
    """The dialog says whose it is."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.push_screen(SignalScreen(on_gpu(child), own_uid=os.geteuid() + 1))
        await pilot.pause()
        assert any(f"not possible: {child.pid} belongs to ana" in line for line in text(app))

    play(live(on_gpu(child)), story)
    assert child.poll() is None


def test_the_demo_and_read_only_never_signal(child: subprocess.Popen[bytes]) -> None:
    """Simulated processes are refused in the dialog; with --read-only there is no dialog at all."""
    simulated = frame(snapshots(30, processes=[on_gpu(child)]), kind="demo")

    async def refused(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("K")
        assert any("not possible: a simulated process cannot be signalled" in line for line in text(app))

    async def absent(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("K")
        assert type(app.screen).__name__ == "Overview"

    play(simulated, refused)
    play(live(on_gpu(child)), absent, view=ViewState(is_read_only=True))
    assert child.poll() is None
