"""What the user sees of every way in which a driver fails."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from live import GPUMON, Shown, Trainer, as_shown, distinct, distinct_gpus, settle_on, shown_gpus, start, state_words

from fakenvml import (
    GIB,
    FakeDriver,
    Process,
    Profile,
    a100_mig,
    gb10,
    gb10_zero,
    h100,
    laptop,
    library_that_does_not_load,
    old_driver,
    rtx5090,
)
from terminal import PtyProgram, default_environment

QUIT_S = 1.0
"""`q` ends the program within this, whatever the driver does."""


def quit_at_once(program: PtyProgram) -> None:
    """`q` ends it with 0 within a second."""
    program.type("q")
    began = time.monotonic()
    assert program.wait_for_exit() == 0
    assert time.monotonic() - began < QUIT_S


def test_unsupported_fields_are_dashes_for_that_field_only(tmp_path: Path) -> None:
    """What one GPU does not report, or may not be asked, is `–` in that one place; its neighbour has it."""
    driver = FakeDriver(tmp_path, distinct_gpus(3))
    driver.update(
        {
            "gpu.0.temperature": "no_permission",
            "gpu.0.power_w": None,
            "gpu.1.clock_sm": "not_supported",
            "gpu.1.clock_graphics": "not_supported",
            "gpu.1.utilization": "not_supported",
            "gpu.1.has_ring": 0,
            "gpu.1.has_gpm": 0,  # utilization would be taken from it
        }
    )
    full = {index: as_shown(distinct(index)) for index in range(3)}
    expected = {
        0: full[0]._replace(temperature=None, power=None),
        1: full[1]._replace(clock=None, util=None),
        2: full[2],
    }
    with start(driver) as program:
        settle_on(program, lambda text: None if shown_gpus(text) == expected else f"{shown_gpus(text)}\n{expected}")
        assert "–" in program.text
        program.resize(40, 10)
        cells = {index: Shown(gpu.util, temperature=gpu.temperature) for index, gpu in expected.items()}
        settle_on(program, lambda text: None if shown_gpus(text) == cells else f"{shown_gpus(text)}\n{cells}")


def test_lost_gpu(tmp_path: Path) -> None:
    """Its row says `lost` and has no number, the headline is CRITICAL with the Xid, the neighbours go on changing."""
    driver = FakeDriver(tmp_path, distinct_gpus(3))
    with Trainer() as trainer, start(driver) as program:
        driver.set_processes(1, [Process(trainer.pid, 8 * GIB, 50)])
        program.wait_for(f"{trainer.pid}")
        driver.queue_xid(gpu=1, xid=79)
        driver.set("gpu.1.lost", 1)
        program.wait_for("■ CRITICAL  GPU 1 lost since ")
        program.wait_until(lambda text: state_words(text)[1] == "lost", "no word")
        assert re.search(r"GPU 1 lost since \d\d:\d\d \(fell off the bus, Xid 79\)", program.text)
        assert " fix save what you can, reboot the node   cost its job" in program.text
        driver.update({f"gpu.{gpu}.{key}": value for gpu in (0, 2) for key, value in distinct(gpu, 4).items()})
        expected = {0: as_shown(distinct(0, 4)), 1: Shown(), 2: as_shown(distinct(2, 4))}
        settle_on(program, lambda text: None if shown_gpus(text) == expected else f"{shown_gpus(text)}\n{expected}")
        program.resize(40, 10)
        program.wait_until(lambda text: text.splitlines()[1].startswith(" ■ GPU 1 lost, "), "no small headline")
        program.resize(20, 5)
        program.wait_until(lambda text: text.splitlines()[2] == " 0■1 2", "no mark on the cell")
        program.resize(80, 24)
        program.type("e")
        program.wait_for("gpu-lost GPU 1 · critical · certain")
        program.wait_for("dmesg | grep -i nvrm")


def test_xid_of_a_gpu_that_goes_on(tmp_path: Path) -> None:
    """An Xid that kills a job but not the GPU leaves the GPU's numbers alone and the program running."""
    driver = FakeDriver(tmp_path, distinct_gpus(2))
    with start(driver, "--interval", "0.2") as program:
        program.wait_for("1 busy")
        for _ in range(50):
            driver.queue_xid(gpu=0, xid=31)
        driver.update({f"gpu.0.{key}": value for key, value in distinct(0, 3).items()})
        expected = {0: as_shown(distinct(0, 3)), 1: as_shown(distinct(1))}
        settle_on(program, lambda text: None if shown_gpus(text) == expected else f"{shown_gpus(text)}\n{expected}")
        assert "lost" not in program.text
        program.type("\r")
        program.wait_for(" Xid 31 at ")
        quit_at_once(program)


def test_driver_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """While it is away: STALE with its age, numbers kept, screen alive; when it is back, numbers change again."""
    driver = FakeDriver(tmp_path, distinct_gpus(2))
    full = {index: as_shown(distinct(index)) for index in range(2)}
    with start(driver) as program:
        settle_on(program, lambda text: None if shown_gpus(text) == full else "not there")
        driver.set("driver.gone", 999)
        program.wait_for("? STALE  driver not answering for ")
        program.wait_until(lambda text: state_words(text) == {0: "stale", 1: "stale"}, "rows are not stale")
        assert re.search(r"not answering for \d+ s; numbers are from \d\d:\d\d:\d\d", program.text)
        assert " cause NVML says Unknown Error   fix wait   q still quits" in program.text
        assert shown_gpus(program.text) == full
        driver.update({"driver.gone": None, **{f"gpu.1.{key}": value for key, value in distinct(1, 5).items()}})
        expected = {0: full[0], 1: as_shown(distinct(1, 5))}
        settle_on(program, lambda text: None if shown_gpus(text) == expected else f"{shown_gpus(text)}\n{expected}")
        program.wait_until(lambda text: "STALE" not in text and "stale" not in text, "stays stale")
        quit_at_once(program)


def muted_cells(program: PtyProgram, text: str) -> bool:
    """Whether the first row with this text has it in the muted colour (246 of 256)."""
    for row, cells in zip(program.rows, program.cells(), strict=True):
        at = row.find(text)
        if at >= 0:
            return all(cell[1] == "949494" for cell in cells[at : at + len(text)])
    raise AssertionError(f"no {text!r} on:\n{program.text}")


def test_call_that_hangs(tmp_path: Path) -> None:
    """A GPU whose calls hang: the screen lives, values grey with their age; the others go on; `q` is instant."""
    driver = FakeDriver(tmp_path, distinct_gpus(3))
    full = {index: as_shown(distinct(index)) for index in range(3)}
    with start(driver) as program:
        settle_on(program, lambda text: None if shown_gpus(text) == full else "not there")
        assert not muted_cells(program, " 311/700")
        driver.set("gpu.1.call.*.hang_s", 30)
        program.wait_for("? STALE  driver not answering for ")
        program.wait_until(lambda text: state_words(text)[1] == "stale", "the row is not stale")
        assert re.search(r"not answering for \d+ s; numbers are from \d\d:\d\d:\d\d", program.text)
        assert " cause unknown yet   fix wait; then dmesg | grep -i nvrm   q still quits" in program.text
        assert shown_gpus(program.text) == full
        assert muted_cells(program, "311/700")
        # Alive: the clock goes, keys answer.
        first = program.text.splitlines()[0]
        program.wait_until(lambda text: text.splitlines()[0] != first, "the clock stands")
        program.type("?")
        program.wait_for("gpumon help")
        program.type("?")
        program.wait_for("q still quits")
        # After ten seconds another thread reads the others.
        driver.update({f"gpu.{gpu}.{key}": value for gpu in (0, 2) for key, value in distinct(gpu, 4).items()})
        expected = {0: as_shown(distinct(0, 4)), 1: full[1], 2: as_shown(distinct(2, 4))}
        settle_on(
            program, lambda text: None if shown_gpus(text) == expected else f"{shown_gpus(text)}\n{expected}", 30.0
        )
        program.wait_for("? STALE  GPU 1 not answering for ")
        program.wait_until(lambda text: state_words(text) == {0: "busy", 1: "stale", 2: "busy"}, "wrong words")
        quit_at_once(program)


def test_driver_that_hangs_from_the_start(tmp_path: Path) -> None:
    """Initialising hangs: the screen opens without GPUs, says so, and `q` is instant."""
    driver = FakeDriver(tmp_path, [h100()], system={"call.nvmlInitWithFlags.hang_s": 30})
    with start(driver) as program:
        program.wait_for("self")
        program.wait_for("STALE")
        quit_at_once(program)


INIT_FAILURES = {
    9: ["the NVIDIA kernel driver is not loaded", "sudo modprobe nvidia"],
    18: ["do not match", "reboot, or reload the nvidia kernel modules"],
    4: ["no permission to use the NVIDIA driver", "/dev/nvidiactl"],
    13: ["is too old for gpumon", "install 450 or newer"],
}


@pytest.mark.parametrize("code", INIT_FAILURES)
def test_driver_that_does_not_start(tmp_path: Path, code: int) -> None:
    """One line that says which fault and what to do, exit 3, no demo: on a terminal, without one, and for `once`."""
    driver = FakeDriver(tmp_path, [h100()], system={"init": code})
    with start(driver) as program:
        assert program.wait_for_exit() == 3
        on_screen = program.text.replace("\n", "")
        assert b"DEMO" not in program.output
    environment = {**default_environment(), **driver.env}
    for arguments in ([], ["once"], ["once", "--json"]):
        done = subprocess.run(
            [*GPUMON, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("gpumon: ")
        assert done.stderr.count("\n") == 1
        for words in INIT_FAILURES[code]:
            assert words in done.stderr
            assert words.replace(" ", "") in on_screen.replace(" ", "")


def test_library_not_found(tmp_path: Path) -> None:
    """On a terminal the labelled demo opens and says why; elsewhere one line and exit 3."""
    without = library_that_does_not_load(tmp_path)
    said = "no NVIDIA driver here (libnvidia-ml.so.1 not found). Install it, or start the container with --gpus all."
    with start(without, width=130) as program:
        program.wait_for(" DEMO  simulated GPUs · scenario ")
        program.wait_for("no NVIDIA driver here (libnvidia-ml.so.1 not found)")
        assert f"gpumon: {said} Opening the DEMO; q quits.".encode() in program.output
        quit_at_once(program)
    for arguments in ([], ["once"]):
        done = subprocess.run(
            [*GPUMON, *arguments],
            env={**default_environment(), **without},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "", f"gpumon: {said}\n")


def test_driver_without_gpu(tmp_path: Path) -> None:
    """A driver without a GPU is nothing to watch: one line, exit 3 for `once`."""
    driver = FakeDriver(tmp_path, [])
    done = subprocess.run(
        [*GPUMON, "once"], env={**default_environment(), **driver.env}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("gpumon: no NVIDIA GPU here (the driver works, but has none).")


def test_processes_that_vanish(tmp_path: Path) -> None:
    """A process that ends leaves the table, also while the driver still lists it; what comes later is shown."""
    driver = FakeDriver(tmp_path, distinct_gpus(2))
    first, second = Trainer(workers=2), Trainer()
    with second, start(driver, "--interval", "0.5") as program:
        driver.set_processes(0, [Process(first.pid, 5 * GIB, 40)])
        driver.set_processes(1, [Process(second.pid, 6 * GIB, 60)])
        program.wait_until(lambda text: f" {first.pid} " in text and f" {second.pid} " in text, "two jobs")
        first.end()
        program.wait_until(lambda text: not re.search(rf" {first.pid} .*trainer.py", text), "a dead process's command")
        assert f" {second.pid} " in program.text
        driver.set_processes(0, [])
        program.wait_until(lambda text: f" {first.pid} " not in text and f" {second.pid} " in text, "stays")
        second.end()
        driver.set_processes(1, [])
        program.wait_for(" No job is using these GPUs. Start one; it appears here within 2 s.")
        quit_at_once(program)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_pids_of_the_host(tmp_path: Path) -> None:
    """In a PID namespace the driver's PIDs mean nothing: the words say so and what to do; GPUs are shown as ever."""
    enter = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespaces here")
    words = "PIDs belong to the host: run the container with --pid=host to see processes"
    driver = FakeDriver(tmp_path, distinct_gpus(2))
    driver.set_processes(0, [Process(os.getpid(), 5 * GIB, 40), Process(4_000_000, GIB, 1)])
    expected = {index: as_shown(distinct(index)) for index in range(2)}
    with start(driver, prefix=enter) as program:
        program.wait_for(words)
        settle_on(program, lambda text: None if shown_gpus(text) == expected else f"{shown_gpus(text)}\n{expected}")
        program.type("q")
        assert program.wait_for_exit() == 0
    done = subprocess.run(
        [*enter, *GPUMON, "once"],
        env={**default_environment(), **driver.env},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == words


def test_mig_instances_under_their_parent(tmp_path: Path) -> None:
    """Parent with power, heat and clock; its instances beneath it, with their own memory and processes."""
    driver = FakeDriver(tmp_path, [a100_mig(), *distinct_gpus(1)])
    with Trainer() as trainer:
        driver.set_processes(0, [Process(trainer.pid, 9 * GIB, 50, gpu_instance=3, compute_instance=0)])
        with start(driver, width=120, height=40) as program:
            program.wait_for(f" {trainer.pid} ")
            lines = program.text.splitlines()
            at = next(number for number, line in enumerate(lines) if "MIG ×3" in line)
            starts = [number for number in range(at, at + 16) if re.match(r"^[› ][ ][ .]\d ", lines[number])][:5]
            assert len({end - begin for begin, end in itertools.pairwise(starts)}) == 1, program.text
            groups = ["\n".join(lines[start:end]) for start, end in itertools.pairwise(starts)]
            assert "214/400" in groups[0]
            assert re.search(r" 62( |$)", lines[at])
            assert re.search(r"\b1410\b", groups[0])
            instances = (("3g", "0.0/19.6"), ("2g", "9.0/9.6"), ("1g", "0.0/4.8"))
            for number, (profile, memory) in enumerate(instances):
                assert re.match(rf"^[› ][ ]\.{number} {profile}", groups[number + 1]), program.text
                assert re.search(rf" {memory}( |$)", groups[number + 1], re.MULTILINE)
            assert re.search(rf" {trainer.pid} +\S+ +0\.1 +9\.0G", program.text), program.text


@pytest.mark.parametrize("profile", [gb10(), gb10_zero()], ids=["gb10", "gb10-zero"])
def test_unified_memory(tmp_path: Path, profile: Profile) -> None:
    """A GPU without memory of its own shows the system's, and no PCIe link that it does not have."""
    driver = FakeDriver(tmp_path, [profile])
    total = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"))[1]) / (1 << 20)  # type: ignore[index]
    with start(driver) as program:
        program.wait_for("GPU 0 GB10")
        found = re.search(r" memory +(\d+\.\d|\d+)/(\d+) G", program.wait_for(" memory "))
        assert found is not None, program.text
        assert int(found[2]) == round(total)
        assert 0 < float(found[1]) < total
        assert shown_gpus(program.text)[0][:4] == (97, 44, 62, 2418)
        assert "PCIe" not in program.text


def test_old_driver(tmp_path: Path) -> None:
    """A driver of 2021 without any of the newer calls gives the same screen, processes included."""
    driver = FakeDriver(tmp_path, [old_driver()])
    with Trainer() as trainer:
        driver.set_processes(0, [Process(trainer.pid, 7 * GIB, 81)])
        with start(driver) as program:
            program.wait_for(" 7.0G   81")
            assert f" {trainer.pid} " in program.text
            assert shown_gpus(program.text)[0] == Shown(97, 238, 76, 1935, 7.0)
            assert "1 × RTX 2080 Ti · driver 465.19.01" in program.text
            assert "fan 58% · PCIe 3 ×16 · limit 89 °C" in program.text


def test_laptop(tmp_path: Path) -> None:
    """A laptop's GPU without fan and power limit: no limit is invented, the rest is right."""
    driver = FakeDriver(tmp_path, [laptop()])
    with start(driver) as program:
        program.wait_for("RTX 4060 Laptop GPU")
        assert shown_gpus(program.text)[0] == Shown(97, 88, 79, 2730, 0.0)
        assert " fan " not in program.text
        assert not re.search(r"of \d+ W", program.text)
        assert "PCIe 4 ×8" in program.text


def test_blackwell_shows_sm_share(tmp_path: Path) -> None:
    """Where the old process-utilization call has nothing, the new one gives each process's SM share."""
    driver = FakeDriver(tmp_path, [rtx5090()])
    with Trainer() as trainer:
        driver.set_processes(0, [Process(trainer.pid, 20 * GIB, 73)])
        with start(driver) as program:
            program.wait_for("20.0G   73")
