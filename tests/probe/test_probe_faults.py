"""Whatever happens around it, the job goes on as it would without the probe, and nothing of others is touched."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from probe_files import report, reports

from gpumon.probe import FOLDER
from gpumon.probe._gpumon_probe import layout, ring

Train = Callable[..., subprocess.CompletedProcess[str]]
STEPS = """
import time, torch
optimizer = torch.optim.SGD()
for _ in range(5):
    optimizer.step()
    time.sleep(0.01)
"""


def is_fine(done: subprocess.CompletedProcess[str], said: str = "done\n") -> bool:
    return (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_its_file_is_private_and_has_all_its_room(train: Train, runtime: Path) -> None:
    assert is_fine(train(STEPS + 'print("done")', PYTHONWARNINGS="error"))
    (path,) = runtime.iterdir()
    found = path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_size, found.st_nlink) == (0o600, layout.FILE_SIZE, 1)
    assert found.st_blocks * 512 >= layout.FILE_SIZE
    assert ring.NAME.match(path.name)


def test_a_process_that_only_imports_leaves_nothing(train: Train, runtime: Path) -> None:
    assert is_fine(train('import torch\nprint("done")'))
    assert not list(runtime.iterdir())


def test_without_a_framework_nothing_of_the_probe_is_loaded(train: Train) -> None:
    done = train("import sys; print(sorted(name for name in sys.modules if 'gpumon' in name), len(sys.meta_path))")
    assert done.stdout.startswith("['_gpumon_probe', '_gpumon_probe.finder']")


@pytest.mark.parametrize("mode", ["0o500", "0o755"])
def test_a_place_that_is_read_only_or_open_to_others_is_not_used(train: Train, tmp_path: Path, mode: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(int(mode, 8))
    text = STEPS + 'import os\nprint("done")'
    if mode == "0o500" and os.geteuid() == 0:
        pytest.skip("root may write there all the same")
    assert is_fine(train(text, GPUMON_RUNTIME_DIR=str(place), XDG_RUNTIME_DIR=str(tmp_path / "none")))
    assert not list(place.iterdir())


def test_a_place_that_another_planted_is_not_used(train: Train, tmp_path: Path) -> None:
    """A symbolic link, even to a directory of one's own."""
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert is_fine(train(STEPS + 'print("done")', GPUMON_RUNTIME_DIR=str(tmp_path / "link")))
    assert not list((tmp_path / "target").iterdir())


def test_a_missing_place_is_made(train: Train, tmp_path: Path) -> None:
    assert is_fine(train(STEPS + 'print("done")', GPUMON_RUNTIME_DIR=str(tmp_path / "new")))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert [each.last.step for each in reports(tmp_path / "new")] == [5]


@pytest.mark.parametrize("option", ["size=128k", "ro"])
def test_a_full_or_read_only_file_system_is_left_alone(train: Train, tmp_path: Path, option: str) -> None:
    place = tmp_path / "full"
    place.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"{option},mode=700", "none", place], check=False)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        text = STEPS + "time.sleep(0.8)\noptimizer.step()\n"
        assert is_fine(train(text + 'print("done")', GPUMON_RUNTIME_DIR=str(place), XDG_RUNTIME_DIR=str(place)))
        assert not list(place.iterdir())
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_file_that_is_cut_or_taken_away_hurts_nobody(train: Train, runtime: Path) -> None:
    text = (
        STEPS
        + f"""
import os, glob
time.sleep(0.7)
(path,) = glob.glob({str(runtime)!r} + "/*")
os.truncate(path, 10)
optimizer.step(); time.sleep(0.7)
os.unlink(path); os.rmdir({str(runtime)!r})
optimizer.step(); time.sleep(0.7)
print("done")
"""
    )
    assert is_fine(train(text))


def test_a_disk_that_fills_up_later_leaves_no_old_word(train: Train, runtime: Path) -> None:
    """Room that was promised is not there after all: the file goes, and the job goes on."""
    text = f"""
import errno, os
write = os.pwrite
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
{STEPS}
time.sleep(0.7)
assert len(os.listdir({str(runtime)!r})) == 1
os.pwrite = full
time.sleep(0.8)
assert os.listdir({str(runtime)!r}) == []
optimizer.step()
print("done")
"""
    assert is_fine(train(text))
    assert not list(runtime.iterdir())


def test_a_probe_that_fails_again_and_again_gives_up(train: Train, runtime: Path) -> None:
    """One report that cannot be made is let go; ten in a row end them, and the file."""
    text = f"""
import os
{STEPS}
time.sleep(0.2)
from _gpumon_probe import publisher
own = publisher._Here.publisher
def fails(*_):
    raise TypeError("of another version")
own._slot = fails
for _ in range(5):
    own.report()
assert len(os.listdir({str(runtime)!r})) == 1
for _ in range(12):
    own.report()
assert os.listdir({str(runtime)!r}) == []
del own._slot
own.report()
print("done")
"""
    assert is_fine(train(text))
    assert not list(runtime.iterdir())


def test_the_last_word_waits_for_the_one_before(train: Train, runtime: Path) -> None:
    """A crowded machine: at the end a report is still being made; the last word comes after it, and nothing then."""
    text = f"""
{STEPS}
time.sleep(0.3)
from _gpumon_probe import publisher
own = publisher._Here.publisher
make, entered = own._slot, []
def slowly(phase):
    entered.append(phase)
    time.sleep(0.9)
    return make(phase)
own._slot = slowly
while not entered:
    time.sleep(0.01)
print("done")
"""
    assert is_fine(train(text))
    (seen,) = reports(runtime)
    assert [slot.phase for slot in seen.slots[-2:]] == [layout.TRAIN, layout.END]


def test_descriptors_that_a_program_closes_and_opens_anew_are_its_own(train: Train, tmp_path: Path) -> None:
    """A daemon closes all it has; its next file may get the probe's number, and nothing is written into it."""
    text = (
        STEPS
        + f"""
import os
time.sleep(0.7)
os.closerange(3, 1024)
files = [os.open({str(tmp_path)!r} + "/own%d" % n, os.O_RDWR | os.O_CREAT) for n in range(300)]
for _ in range(4):
    optimizer.step(); time.sleep(0.5)
print("done")
"""
    )
    assert is_fine(train(text))
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("own*"))


def test_killed_between_two_reports(train: Train, runtime: Path) -> None:
    """What is lost is less than a report's period; the file stays, and says no end."""
    done = train(STEPS + "import os\ntime.sleep(0.7)\nos.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL
    (seen,) = reports(runtime)
    assert (seen.last.step, seen.last.phase) == (5, layout.TRAIN)


def test_an_exception_is_named_and_not_its_text(train: Train, runtime: Path) -> None:
    done = train(STEPS + "raise RuntimeError('hf_secret')")
    assert done.returncode == 1
    assert "_gpumon_probe" not in done.stderr
    (path,) = runtime.iterdir()
    assert (report(path).body["error"], report(path).last.phase) == ("RuntimeError", layout.END)
    assert b"hf_secret" not in path.read_bytes()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_train_have_files_of_their_own(train: Train, runtime: Path, method: str) -> None:
    text = f"""
import multiprocessing, os, time
import torch
optimizer = torch.optim.SGD()
def train(steps):
    for _ in range(steps):
        optimizer.step(); time.sleep(0.01)
    time.sleep(0.7)
def idle():
    time.sleep(0.7)
if __name__ == "__main__":
    optimizer.step()
    time.sleep(0.2)
    context = multiprocessing.get_context({method!r})
    children = [context.Process(target=train, args=(3 + n,)) for n in range(2)] + [context.Process(target=idle)]
    [child.start() for child in children]
    [child.join() for child in children]
    print("done")
"""
    assert is_fine(train(text))
    assert sorted(seen.last.step for seen in reports(runtime)) == [1, 3, 4]


def test_exec_begins_a_new_file(train: Train, runtime: Path) -> None:
    text = (
        STEPS
        + """
import os, sys
if len(sys.argv) == 1:
    time.sleep(0.3)
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
"""
    )
    assert train(text).returncode == 0
    (seen,) = reports(runtime)
    assert seen.last.step == 5


def test_files_of_the_dead_are_removed_after_a_while(train: Train, runtime: Path) -> None:
    old, young, other = runtime / "999999.1", runtime / "999998.1", runtime / "notes.txt"
    for path in (old, young, other):
        path.write_bytes(b"")
    for path in (old, other):
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    train(STEPS)
    assert (old.exists(), young.exists(), other.exists()) == (False, True, True)


def test_switched_off(train: Train, runtime: Path) -> None:
    assert is_fine(train(STEPS + 'print("done")', GPUMON_PROBE="off"))
    assert not list(runtime.iterdir())


def test_without_a_thread(train: Train, runtime: Path) -> None:
    text = STEPS + 'import os\nassert len(os.listdir("/proc/self/task")) == 1\nprint("done")'
    assert is_fine(train(text, GPUMON_PROBE="nothread"))
    assert [seen.last.step for seen in reports(runtime)] == [5]


def test_signals_are_for_the_jobs_own_threads(train: Train) -> None:
    """A program that waits for a signal with `sigwait` gets it, although another thread is there."""
    text = (
        STEPS
        + """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
assert signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1
import threading
assert threading.enumerate() == [threading.main_thread()]
print("done")
"""
    )
    assert is_fine(train(text))


OWN = "import sys\nsys.own = 'mine'\nsys.path.append('/added')\n"


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.6", "2.7"])
def test_every_python_runs_the_users_own_sitecustomize(
    environment: dict[str, str], tmp_path: Path, version: str
) -> None:
    places = [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        *Path("/opt").glob(f"*/bin/python{version}"),
    ]
    if not places:
        pytest.skip(f"no Python {version} here")
    interpreter = str(places[0])
    (tmp_path / "sitecustomize.py").write_text(OWN)
    show = "import sys; print(sys.own, sys.modules['sitecustomize'].__file__, '/added' in sys.path, sys.path[:2])"

    def said(path: str) -> tuple[str, str]:
        done = subprocess.run([interpreter, "-c", show], env={**environment, "PYTHONPATH": path}, capture_output=True,
                              text=True, check=False)  # fmt: skip
        return done.stdout, done.stderr

    assert said(f"{FOLDER}:{tmp_path}") == said(str(tmp_path))
    assert said(f"{FOLDER}:{tmp_path}")[0].count("mine") == 1


@pytest.mark.parametrize("text", ["raise ValueError('mine')", "import nowhere_to_be_found", "import sys; sys.exit(3)"])
def test_a_sitecustomize_that_fails_fails_as_before(environment: dict[str, str], tmp_path: Path, text: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(text)

    def ran(path: str) -> tuple[int, str]:
        command = [sys.executable, "-c", "print('on')"]
        done = subprocess.run(
            command, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr.splitlines()[-1]

    assert ran(f"{FOLDER}:{tmp_path}") == ran(str(tmp_path))


def test_a_torch_of_another_shape_is_left_alone(train: Train, tmp_path: Path) -> None:
    """Hooks find nothing of what they know: the program runs as if nobody looked."""
    for name in ("torch", "torch/optim", "torch/utils", "torch/utils/data"):
        (tmp_path / "odd" / name).mkdir(parents=True)
        (tmp_path / "odd" / name / "__init__.py").write_text("")
    (tmp_path / "odd/torch/optim/optimizer.py").write_text("")
    (tmp_path / "odd/torch/utils/data/dataloader.py").write_text("class DataLoader: pass")
    text = "import torch.optim.optimizer, torch.utils.data.dataloader\nprint('done')"
    assert is_fine(train(text, PYTHONPATH=f"{FOLDER}:{tmp_path / 'odd'}"))


def test_sixty_four_ranks(environment: dict[str, str], runtime: Path, tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(STEPS + "time.sleep(0.6)")
    path = f"{FOLDER}:{Path(__file__).parent / 'standin'}"
    running = [
        subprocess.Popen([sys.executable, str(program)],
                         env={**environment, "PYTHONPATH": path, "RANK": str(rank), "WORLD_SIZE": "64"})
        for rank in range(64)
    ]  # fmt: skip
    assert [each.wait(timeout=100) for each in running] == [0] * 64
    seen = reports(runtime)
    assert sorted(each.body["rank"] for each in seen) == list(range(64))
    assert {each.last.step for each in seen} == {5}


def test_the_folder_can_be_copied_alone(train: Train, runtime: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copied"
    copy.mkdir()
    shutil.copy(Path(FOLDER, "sitecustomize.py"), copy)
    shutil.copytree(Path(FOLDER, "_gpumon_probe"), copy / "_gpumon_probe")
    assert is_fine(train(STEPS + 'print("done")', PYTHONPATH=f"{copy}:{Path(__file__).parent / 'standin'}"))
    assert [each.last.step for each in reports(runtime)] == [5]


def test_one_line_does_the_same(environment: dict[str, str], runtime: Path, tmp_path: Path) -> None:
    """`gpumon.watch()` before or after the framework is imported; importing gpumon itself is cheap."""
    program = tmp_path / "train.py"
    program.write_text(
        "import sys; before = set(sys.modules); import gpumon\n"
        "assert not {'textual', 'msgspec', 'psutil', 'typing', 'importlib.util'} & (set(sys.modules) - before)\n"
        "import torch; gpumon.watch(); gpumon.watch()\n"
        f"{STEPS}\nwith gpumon.phase('checkpoint'): pass\n"
    )
    path = f"{Path(FOLDER).parent.parent}:{Path(__file__).parent / 'standin'}"
    done = subprocess.run(
        [sys.executable, str(program)], env={**environment, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [each.last.step for each in reports(runtime)] == [5]
