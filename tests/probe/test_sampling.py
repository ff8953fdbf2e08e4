"""`gpumon attach --sample PID`: stacks of an older Python from outside, as a share with its error, and told as such."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.cli import run
from gpumon.commands import attach, sampling
from gpumon.sources.inbox.inbox import Inbox
from gpumon.sources.inbox.sampled import Telling, teller_of
from probefile import ProbeFile
from test_attach import idle, needs_root, started

PY_SPY = attach.py_spy()
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="no py-spy here")
WAITING = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is told, for this process and those that it starts."""
    path = tmp_path / "probes"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(path))
    return path


@pytest.fixture
def inbox(place: Path) -> Iterator[Inbox]:
    box = Inbox({"GPUMON_RUNTIME_DIR": str(place)})
    box._own = box._own[:1]
    yield box
    box.close()


StandIn = Callable[[str], None]


@pytest.fixture
def py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Puts a program on the PATH, first, that is called py-spy; its arguments end with the number."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(script: str) -> None:
        program = folder / "py-spy"
        program.write_text("#!/bin/sh\nfor pid; do :; done\n" + textwrap.dedent(script))
        program.chmod(0o755)

    return make


def dump(name: str, file: str) -> str:
    """What py-spy writes of a main thread in this call; the shell knows its number."""
    frames = [
        {"name": name, "filename": file, "line": 725},
        {"name": "<module>", "filename": "/me/train.py", "line": 9},
    ]
    text = json.dumps([{"os_thread_id": 0, "thread_name": None, "frames": frames}])
    return text.replace('"os_thread_id": 0', "\"os_thread_id\": '$pid'")


def in_turn(*dumps: str) -> str:
    """A script that writes these one after the other, over and over."""
    cases = "\n".join(f"{number}) echo '{text}' ;;" for number, text in enumerate(dumps))
    return f"""
count=$(cat "$0.count" 2>/dev/null || echo 0)
echo $((count + 1)) > "$0.count"
case $((count % {len(dumps)})) in
{cases}
esac
"""


WAIT = dump("_BaseDataLoaderIter.__next__", WAITING)
WORK = dump("step", "/me/train.py")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PAUSE_S", (0.01, 0.02))


# --- what it says --------------------------------------------------------------------------------


@pytest.mark.usefixtures("fast")
def test_a_share_with_its_error_labelled_sampled(
    capsys: pytest.CaptureFixture[str], py_spy: StandIn, inbox: Inbox, place: Path
) -> None:
    """Every fourth look waits; a monitor sees it as it comes, and nothing is left at the end."""
    py_spy(in_turn(WAIT, WORK, WORK, WORK))
    with started(idle()) as process, subprocess.Popen(
        [sys.executable, "-c", WATCH, str(place), str(process.pid)], stdout=subprocess.PIPE, text=True
    ) as watcher:  # fmt: skip
        assert run(["attach", "--sample", str(process.pid), "--for", "4"]) == 0
        assert watcher.communicate(timeout=20)[0] == "True True None\n"
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert err == ""
    told = re.fullmatch(
        rf"gpumon: process {process.pid} waits for data (\d+)% of the time "
        r"\(sampled: (\d+) stacks in [4-9] s, 95% between (\d+) and (\d+)%\)",
        first,
    )
    assert told is not None, first
    share, stacks, low, high = map(int, told.groups())
    assert share == pytest.approx(25, abs=2)
    assert stacks > 30
    assert 10 <= low < 25 < high <= 45
    assert second.startswith("gpumon: its main thread is mostly in step (train.py:725): 7")
    assert list(place.iterdir()) == []
    assert inbox.read({}, (), time.monotonic()) == ()


WATCH = """
import sys, time
from gpumon.sources.inbox.inbox import Inbox
inbox = Inbox({"GPUMON_RUNTIME_DIR": sys.argv[1]})
inbox._own = inbox._own[:1]
until = time.monotonic() + 15
ranks = ()
while time.monotonic() < until and not (ranks and (ranks[0].sampled_stacks or 0) >= 8):
    time.sleep(0.1)
    ranks = inbox.read({}, (), time.monotonic())
rank = ranks[0]
print(rank.is_sampled and rank.pid == int(sys.argv[2]), 1 <= rank.sampled_waits <= rank.sampled_stacks / 3, rank.step_s)
"""


@pytest.mark.usefixtures("fast", "place")
def test_few_samples_claim_nothing(capsys: pytest.CaptureFixture[str], py_spy: StandIn) -> None:
    py_spy(f"echo '{WAIT}'; sleep 0.3")
    with started(idle()) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "1s"]) == 0
    out = capsys.readouterr().out
    assert "too few to say how long it waits for data (20 at least)" in out
    assert "%" not in out


@pytest.mark.usefixtures("fast", "place")
def test_a_loader_that_no_table_knows_is_not_called_fast(capsys: pytest.CaptureFixture[str], py_spy: StandIn) -> None:
    py_spy(f"echo '{WORK}'")
    with started(idle()) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "2"]) == 0
    out = capsys.readouterr().out
    assert "was never seen waiting in a data loader that gpumon knows (sampled: " in out
    assert "0% of the time" not in out


@pytest.mark.usefixtures("fast", "place")
def test_a_stack_that_changes_while_it_is_read_does_not_wait(
    capsys: pytest.CaptureFixture[str], py_spy: StandIn
) -> None:
    """Left out it would make waits look more frequent; where most are so, nothing is said."""
    torn = "'; echo 'Error: Failed to get stack traces' >&2; exit 1; echo '"
    py_spy(in_turn(WAIT, WORK, WORK, torn))
    with started(idle()) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "2"]) == 0
        out = capsys.readouterr().out
        assert int(out.partition("waits for data ")[2].partition("%")[0]) == pytest.approx(25, abs=2)
        py_spy(in_turn(WAIT, torn, torn, torn))
        assert run(["attach", "--sample", str(process.pid), "--for", "2"]) == 0
        assert "stacks changed while they were read, which is too many to say" in capsys.readouterr().out


@pytest.mark.usefixtures("place")
def test_two_looks_are_never_closer_than_half_a_second(py_spy: StandIn, tmp_path: Path) -> None:
    """However fast py-spy is; and it is asked not to stop the process."""
    log = tmp_path / "looks"
    py_spy(f"date +%s.%N >> {log}; echo \"$@\" >> {log}.words; echo '{WORK}'")
    with started(idle()) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "4"]) == 0
    times = [float(line) for line in log.read_text().split()]
    assert 5 <= len(times) <= 8
    assert min(after - before for before, after in pairwise(times)) >= 0.49
    words = set((tmp_path / "looks.words").read_text().splitlines())
    assert words == {f"dump --nonblocking --json --pid {process.pid}"}


# --- how it ends ---------------------------------------------------------------------------------


SAMPLE = """
import sys
from gpumon.commands import sampling
sampling.PAUSE_S = (0.02, 0.04)
sys.exit(sampling.run(int(sys.argv[1]), None))
"""


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_goes_on_until_it_is_told_to_end(py_spy: StandIn, place: Path, number: int) -> None:
    py_spy(f"echo '{WAIT}'")
    with started(idle()) as process, subprocess.Popen(
        [sys.executable, "-c", SAMPLE, str(process.pid)], stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # however the tests were started
    ) as sampler:  # fmt: skip
        _await(lambda: any(place.iterdir()))
        assert stat.S_IMODE(next(place.iterdir()).stat().st_mode) == 0o600
        time.sleep(2.0)
        sampler.send_signal(number)
        out = sampler.communicate(timeout=20)[0]
        assert sampler.returncode == 0
        assert "waits for data 100% of the time (sampled: " in out
    assert list(place.iterdir()) == []


@pytest.mark.usefixtures("fast", "place")
def test_the_process_ends_before(capsys: pytest.CaptureFixture[str], py_spy: StandIn) -> None:
    py_spy(f"echo '{WAIT}'")
    code = "import time; print('ready', flush=True); time.sleep(1.5)"
    with started([sys.executable, "-c", code]) as process:
        assert run(["attach", "--sample", str(process.pid)]) == 0
    assert f"process {process.pid} has ended\n" in capsys.readouterr().out


@pytest.mark.usefixtures("fast")
def test_a_probe_that_comes_ends_it(capsys: pytest.CaptureFixture[str], py_spy: StandIn, place: Path) -> None:
    """The probe puts its own file in the place of this one: it measures, and its file stays."""
    py_spy(f"""
        echo '{WAIT}'
        count=$(cat "$0.count" 2>/dev/null || echo 0)
        echo $((count + 1)) > "$0.count"
        [ $count != 5 ] || {sys.executable} -c "{PROBE}" {place} $pid
    """)
    with started(idle()) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "30"]) == 0
        assert f"process {process.pid} has a probe now\n" in capsys.readouterr().out
        assert len(list(place.iterdir())) == 1
        assert run(["attach", "--sample", str(process.pid)]) == 0
        assert "has a probe already, which measures this" in capsys.readouterr().out


HERE = Path(__file__).parent.parent
PROBE = f"""import os, sys
sys.path[:0] = ['{HERE}', '{HERE.parent}']
from pathlib import Path
from probefile import ProbeFile
for path in Path(sys.argv[1]).iterdir(): path.unlink()
ProbeFile(Path(sys.argv[1]), int(sys.argv[2])).write([(0.1, 0.0)])
"""


@pytest.mark.usefixtures("fast")
def test_only_one_samples_a_process(capsys: pytest.CaptureFixture[str], py_spy: StandIn, place: Path) -> None:
    """The second says so; what one leaves that was killed is in nobody's way."""
    py_spy(f"echo '{WAIT}'")
    with started(idle()) as process, subprocess.Popen([sys.executable, "-c", SAMPLE, str(process.pid)]) as sampler:
        _await(lambda: any(place.iterdir()))
        time.sleep(0.2)
        assert run(["attach", "--sample", str(process.pid)]) == 0
        assert "is sampled already" in capsys.readouterr().out
        sampler.kill()
        sampler.wait()
        time.sleep(0.5)  # a py-spy that it was about to start
        assert len(list(place.iterdir())) == 1
        assert run(["attach", "--sample", str(process.pid), "--for", "1"]) == 0
        assert "(sampled: " in capsys.readouterr().out
        assert list(place.iterdir()) == []


@pytest.mark.usefixtures("fast")
def test_no_place_to_tell_it_is_no_obstacle(
    capsys: pytest.CaptureFixture[str], py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling.Telling, "begin", lambda *_: None)
    py_spy(f"echo '{WAIT}'")
    with started(idle()) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "1"]) == 0
    out, err = capsys.readouterr()
    assert "(sampled: " in out
    assert "no place to tell other gpumons" in err


def test_an_attached_probe_does_not_mind_samples(place: Path) -> None:
    """Who only looks is no probe: `gpumon attach` goes on to what it would say without."""
    with started(idle()) as process:
        environment = {"GPUMON_RUNTIME_DIR": str(place)}
        telling = Telling.begin(process.pid, {b"RANK": b"3"})
        assert telling is not None
        assert teller_of(process.pid, os.geteuid(), environment) == "sampler"
        telling.end(3, 1)
        assert teller_of(process.pid, os.geteuid(), environment) is None
        file = ProbeFile(place, process.pid)
        assert teller_of(process.pid, os.geteuid(), environment) == "probe"
        file.close()


# --- refusals ------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], pid: int, *more: str) -> str:
    assert run(["attach", "--sample", str(pid), *more]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.usefixtures("fast")
def test_without_py_spy(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(idle()) as process:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        said = refused(capsys, process.pid)
        assert "--sample takes py-spy, and there is none on the PATH or beside gpumon: pip install py-spy" in said
        # Beside the Python that runs gpumon counts, on the PATH or not.
        (tmp_path / "py-spy").write_text("#!/bin/sh\necho 'Error: no such luck' >&2; exit 1\n")
        (tmp_path / "py-spy").chmod(0o755)
        assert "cannot be sampled: no such luck" in refused(capsys, process.pid)


def test_what_is_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    with started(["sleep", "60"], says_ready=False) as process:
        assert f"process {process.pid} is no Python process (sleep)" in refused(capsys, process.pid)
    assert "there is no process 4194399" in refused(capsys, 4194399)
    assert "is gpumon itself" in refused(capsys, os.getpid())


@needs_root
def test_another_users_process(capsys: pytest.CaptureFixture[str]) -> None:
    sleeper = "import os, time; os.setuid(65534); print('ready', flush=True); time.sleep(60)"
    with started([sys.executable, "-c", sleeper]) as process:
        said = refused(capsys, process.pid)
        assert "only nobody may look into it: sudo -u nobody gpumon attach --sample" in said


def test_what_the_kernel_forbids(
    capsys: pytest.CaptureFixture[str], py_spy: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its rule where that is the reason; else a container's, or the process's own."""
    py_spy("""echo 'Permission Denied: Try running again with elevated permissions by going ...' >&2; exit 1""")
    with started(idle()) as process:
        monkeypatch.setattr(attach, "ptrace_rule", lambda *_, **__: "only a parent may enter its children here")
        assert "only a parent may enter its children here; or start it with" in refused(capsys, process.pid)
        monkeypatch.setattr(attach, "ptrace_rule", lambda *_, **__: None)
        monkeypatch.setattr(attach, "container_of", lambda _: "0123456789ab")
        assert "this container may not look into processes: start it with --cap-add SYS_PTRACE" in refused(
            capsys, process.pid
        )


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "py-spy does not show its main thread"),
        ("echo nonsense", "py-spy does not show its main thread"),
        ("printf 'Error: \\033]0;x\\007\\n' >&2; exit 1", "cannot be sampled: ·]0;x·;"),
        ("head -c 5000000 /dev/zero", "py-spy does not show its main thread"),
        ("sleep 60", "py-spy does not answer within 0.2 s"),
    ],
)
def test_a_py_spy_that_says_nothing_of_use(
    capsys: pytest.CaptureFixture[str], py_spy: StandIn, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(sampling, "_DUMP_S", 0.2)
    py_spy(script)
    with started(idle()) as process:
        assert words in refused(capsys, process.pid)


def test_a_time_goes_with_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["attach", "1", "--for", "30"]) == 2
    assert "--for: says how long to sample; it goes with --sample" in capsys.readouterr().err
    assert "'soon' is not a time" in refused(capsys, os.getpid(), "--for", "soon")


# --- with py-spy itself --------------------------------------------------------------------------


LOOP = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Images(Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        until = time.perf_counter() + float(sys.argv[1])
        while time.perf_counter() < until:
            sum(range(100))
        return torch.randn(32)

model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batches = iter(DataLoader(Images(), batch_size=4, num_workers=int(sys.argv[2])))
for _ in range(5):
    next(batches)
began, waited = time.perf_counter(), 0.0
print("ready", flush=True)
while True:
    before = time.perf_counter()
    batch = next(batches)
    waited += time.perf_counter() - before
    until = time.perf_counter() + 0.03
    while time.perf_counter() < until:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    open(sys.argv[3], "w").write(f"{waited / (time.perf_counter() - began)}\\n")
"""


@needs_py_spy
@pytest.mark.torch
@pytest.mark.parametrize(
    ("delay", "workers"), [("0.005", "0"), ("0.03", "2"), ("0.0", "0")], ids=["main-thread", "workers", "healthy"]
)
def test_a_real_loop(
    capsys: pytest.CaptureFixture[str],
    interpreter_with: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    delay: str,
    workers: str,
) -> None:
    """The share by some 250 stacks is within ten points of the loop's own clock; the healthy twin hardly waits."""
    monkeypatch.setattr(sampling, "PAUSE_S", (0.05, 0.11))
    clock = tmp_path / "clock"
    with started([interpreter_with("torch"), "-c", LOOP, delay, workers, str(clock)]) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "40"]) == 0
        truth = 100.0 * float(clock.read_text().split()[0])
    out = capsys.readouterr().out
    share = 0.0 if "was never seen" in out else float(out.partition("waits for data ")[2].partition("%")[0])
    assert share == pytest.approx(truth, abs=10.0)
    assert (truth > 30.0) == (delay != "0.0")


@needs_py_spy
def test_the_running_process_is_not_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its longest pause is that of a busy machine, not of a tracer; and it sees no signal and no tracer."""
    monkeypatch.setattr(sampling, "PAUSE_S", (0.0, 0.01))
    code = """if True:
        import time
        print("ready", flush=True)
        while True:
            text = open("/proc/self/status").read()
            if "TracerPid:\\t0\\n" not in text:
                print("traced", flush=True)
            time.sleep(0.001)
    """
    with started([sys.executable, "-c", code]) as process:
        assert run(["attach", "--sample", str(process.pid), "--for", "3"]) == 0
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert " stacks in " in capsys.readouterr().out


def _await(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_so() and time.monotonic() < until:
        time.sleep(0.02)
    assert is_so()
