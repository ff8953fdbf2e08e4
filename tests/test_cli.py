"""The command line's contract: verbs, options, exit codes, and errors of one line that name the nearest right thing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakenvml import GIB, FakeDriver, Process, h100, library_that_does_not_load, rtx4090
from gpumon import __version__, cli
from gpumon.rules import RULES
from gpumon.sources.demo import SCENARIOS
from terminal import default_environment, python

UUIDS = [f"GPU-{index:08x}-fa4e-4000-8000-{index:012x}" for index in range(3)]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """Three GPUs, one of another kind; this very process holds memory on the second."""
    gpus = [h100(), rtx4090().but(utilization=31, power_w=120.4, temperature=55), h100().but(temperature=None)]
    driver = FakeDriver(tmp_path_factory.mktemp("driver"), gpus)
    driver.set_processes(1, [Process(os.getpid(), 6 * GIB, 30)])
    return driver


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a machine without a driver."""
    return library_that_does_not_load(tmp_path_factory.mktemp("none"))


def gpumon(
    *arguments: str, driver: FakeDriver | Mapping[str, str] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it away from any terminal and any user's configuration; nothing may be a warning."""
    given = driver.env if isinstance(driver, FakeDriver) else driver or {}
    return subprocess.run(
        python("-W", "error", "-m", "gpumon", *arguments),
        env={**default_environment(HOME="/nonexistent"), **given, **environment},
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """What a refused call says: one line on stderr and nothing else."""
    assert (done.returncode, done.stdout) == (code, ""), done
    assert re.fullmatch(r"gpumon: .*\n", done.stderr), done.stderr
    return done.stderr


# --- in this process: what is refused before anything is read ------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["onec"], "'onec' is not known; did you mean once?"),
        (["--intervall", "3"], "--intervall; did you mean --interval?"),
        (["once", "--intervall", "3"], "did you mean --interval?"),
        (["once", "--jsn"], "--jsn; did you mean --json?"),
        (["--read-onyl"], "--read-onyl; did you mean --read-only?"),
        (["--interval", "99"], "--interval: 99 is not within 0.1 to 60 seconds"),
        (["--interval", "0.01"], "--interval: 0.01 is not within 0.1 to 60 seconds"),
        (["--interval", "nan"], "--interval: nan is not within 0.1 to 60 seconds"),
        (["--interval", "fast"], "--interval: invalid float value: 'fast'"),
        (["--interval"], "--interval: expected one argument"),
        (["--demo", "throtled"], "no demo scenario 'throtled'; did you mean throttled?"),
        (["--demo", "healthy", "--gpus", "0"], "the demo brings its own"),
        (["explain", "sw-termal"], "no rule is called 'sw-termal'; did you mean sw-thermal?"),
        (["explain", "qqqq"], "no rule is called 'qqqq'; `gpumon explain` lists them"),
        (["--config", "/nonexistent/a.toml", "config"], "/nonexistent/a.toml: cannot be read: No such file"),
        (["once", "5"], "unrecognized arguments: 5"),
    ],
)
def test_refuses_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """A wrong verb, option, value, scenario or rule: exit 2, one line, the nearest right thing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    assert cli.run(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("gpumon: ")
    assert output.err.count("\n") == 1
    assert said in output.err


def test_explains_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has every rule with its first sentence; each rule prints its documentation."""
    assert cli.run(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [rule.id for rule in RULES]
    for rule, line in zip(RULES, listed, strict=True):
        assert cli.run(["explain", rule.id]) == 0
        told = capsys.readouterr().out
        assert line.removeprefix(rule.id).strip() == told.splitlines()[2]
        for heading in ("What it sees", "Why it matters", "What to do", "When it is wrong"):
            assert heading in told


def test_lists_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    """`--demo list` names every scenario, those of the contract among them."""
    assert cli.run(["--demo", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == list(SCENARIOS)
    assert {"healthy", "input-bound", "throttled", "leaking", "fragmented", "hang", "straggler", "lost-gpu"} <= {*names}


def test_crash_is_told_apart(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of gpumon itself: the traceback on stderr, exit 70."""

    def broken(_options: object) -> int:
        raise ZeroDivisionError("no such luck")

    monkeypatch.setattr(cli, "_explain", broken)
    assert cli.run(["explain"]) == 70
    output = capsys.readouterr()
    assert "Traceback" in output.err
    assert "ZeroDivisionError: no such luck" in output.err


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during a verb without a screen: 130, no traceback."""

    def interrupted(_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_explain", interrupted)
    assert cli.run(["explain"]) == 130


# --- as a program ---------------------------------------------------------------------------------


def test_version() -> None:
    """`--version` and `-V` print it and nothing else."""
    for option in ("--version", "-V"):
        done = gpumon(option)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"gpumon {__version__}\n", "")


def test_help_names_everything() -> None:
    """`--help` has every verb, every option and the exit codes; each verb's help has its own options."""
    done = gpumon("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("once", "explain", "config"):
        assert re.search(rf"^ +{name} ", done.stdout, re.MULTILINE), name
    options = "config interval gpus visible ascii no-color read-only no-bell log version demo"
    for option in options.split():
        assert f"--{option}" in done.stdout, option
    assert (
        "exit codes: 0 done, 2 usage, unreadable input or unwritable output, 3 no driver or GPU, 70 a crash"
        in done.stdout
    )
    assert "--json" in gpumon("once", "--help").stdout
    told = gpumon("config", "--help").stdout
    assert "--init" in told
    assert "--path" in told


def test_once_as_a_table(driver: FakeDriver) -> None:
    """A line per GPU with its values, `–` for what it does not report, its processes beneath it."""
    done = gpumon("once", driver=driver)
    assert (done.returncode, done.stderr) == (0, "")
    first, head, *lines = done.stdout.splitlines()
    assert first.endswith("  driver 580.95.05  CUDA 13.0")
    assert head.split()[:3] == ["GPU", "NAME", "UTIL"]
    assert lines[0].split() == "0 NVIDIA H100 80GB HBM3 97% 0.0/79.6 612/700 62 °C 1980 P0".split()
    rtx = "1 NVIDIA GeForce RTX 4090 31% 6.0/24.0 120/450 55 °C 2730 P0 sw_power_cap"
    assert lines[1].split() == rtx.split()
    assert lines[2].split()[0] == str(os.getpid())
    assert lines[2].split()[2:4] == ["6.0", "G"]
    assert lines[3].split() == "2 NVIDIA H100 80GB HBM3 97% 0.0/79.6 612/700 – 1980 P0".split()
    assert len(lines) == 4


def test_once_as_json(driver: FakeDriver) -> None:
    """One snapshot with gpumon's version: values as the driver says, what is not reported and every rate null."""
    done = gpumon("once", "--json", driver=driver)
    assert (done.returncode, done.stderr) == (0, "")
    snapshot = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert snapshot["gpumon"] == __version__
    assert snapshot["interval_s"] is None
    assert [gpu["uuid"] for gpu in snapshot["gpus"]] == UUIDS
    expected = {
        "index": 1,
        "name": "NVIDIA GeForce RTX 4090",
        "pci_bus_id": "00000000:11:00.0",
        "is_lost": False,
        "utilization_pct": 31.0,
        "memory_used_bytes": 6 * GIB,
        "memory_total_bytes": 24564 << 20,
        "power_w": 120.4,
        "power_limit_w": 450.0,
        "temperature_c": 55,
        "sm_clock_mhz": 2730,
        "performance_state": "P0",
        "clocks_event_reasons": ["sw_power_cap"],
        "memory_temperature_c": None,
        "nvlinks_total": None,
        "throttled_pct": None,
        "pcie_rx_bytes_per_s": None,
        "pcie_tx_bytes_per_s": None,
        "sm_active_pct": None,
    }
    gpu = snapshot["gpus"][1]
    assert {name: gpu[name] for name in expected} == expected
    assert snapshot["gpus"][2]["temperature_c"] is None
    (process,) = snapshot["processes"]
    assert process["pid"] == os.getpid()
    assert process["gpu_memory_bytes"] == {UUIDS[1]: 6 * GIB}
    assert [process[rate] for rate in ("cpu_pct", "read_bytes_per_s", "write_bytes_per_s")] == [None] * 3
    assert snapshot["host"]["driver_version"] == "580.95.05"
    assert [snapshot["host"][rate] for rate in ("cpu_pct", "disk_read_bytes_per_s", "net_rx_bytes_per_s")] == [None] * 3


def test_pipe_that_is_closed(driver: FakeDriver) -> None:
    """`gpumon once | head -1` ends quietly, with 0 on both sides."""
    shell = f"{sys.executable} -W error -m gpumon once --json | head -1; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(
        ["bash", "-c", shell], env={**default_environment(), **driver.env}, capture_output=True, text=True, check=True
    )
    assert (done.stdout.splitlines(), done.stderr) == (["{", "0 0"], "")


PRINTING = ["--version", "--help", "explain", "explain sw-thermal", "config", "once", "once --json", "--demo list"]


@pytest.mark.parametrize("arguments", [*PRINTING, "", "diagnose --for 1s"])
def test_closed_stdout(driver: FakeDriver, arguments: str) -> None:
    """`gpumon explain >&-`: one line that says so, exit 2, never a traceback."""
    assert in_shell(f"{arguments} >&-", driver) == (2, "gpumon: stdout is closed: there is nowhere to print to\n")


@pytest.mark.parametrize("arguments", [*PRINTING, "diagnose --for 1s"])
def test_stdout_on_a_full_disk(driver: FakeDriver, arguments: str) -> None:
    """`gpumon once > /dev/full`: one line with the reason, exit 2."""
    full = (2, "gpumon: cannot write to stdout: No space left on device\n")
    assert in_shell(f"{arguments} >/dev/full", driver) == full


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_unwritable_stderr(driver: FakeDriver, stderr: str) -> None:
    """Where even the complaint cannot be written the exit code still tells."""
    assert in_shell(f"explain nonsense {stderr}", driver) == (2, "")
    assert in_shell(f"once >&- {stderr}", driver) == (2, "")
    assert in_shell(f"explain {stderr} >/dev/null", driver) == (0, "")


def in_shell(arguments: str, driver: FakeDriver) -> tuple[int, str]:
    """Exit code and stderr of a line with redirections."""
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -W error -m gpumon {arguments}"],
        env={**default_environment(HOME="/nonexistent"), **driver.env},
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "indices"),
    [
        (["--gpus", "2,0"], {}, [0, 2]),
        (["--gpus", UUIDS[1]], {}, [1]),
        (["--gpus", f" 0 , {UUIDS[2]}"], {}, [0, 2]),
        ([], {"CUDA_VISIBLE_DEVICES": "1"}, [0, 1, 2]),
        (["--visible"], {"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},0"}, [0, 1]),
        (["--visible"], {}, [0, 1, 2]),
    ],
)
def test_selected_gpus(
    driver: FakeDriver, arguments: list[str], environment: dict[str, str], indices: list[int]
) -> None:
    """`--gpus` takes indices and UUIDs; CUDA_VISIBLE_DEVICES counts with `--visible` only."""
    done = gpumon("once", "--json", *arguments, driver=driver, **environment)
    assert [gpu["index"] for gpu in json.loads(done.stdout)["gpus"]] == indices


def test_gpu_that_is_not_there(driver: FakeDriver) -> None:
    """An unknown index, or nothing visible: exit 2, and which GPUs there are."""
    assert "--gpus 7: no such GPU; GPUs here are 0 to 2." in refusal(gpumon("once", "--gpus", "7", driver=driver))
    for hidden in ("", "-1"):
        line = refusal(gpumon("once", "--visible", driver=driver, CUDA_VISIBLE_DEVICES=hidden))
        assert f"--visible: CUDA_VISIBLE_DEVICES='{hidden}' hides every GPU" in line


def test_no_terminal(driver: FakeDriver, without: Mapping[str, str]) -> None:
    """Without a terminal the live screen ends with 2 and the way out, where there is no driver with 3."""
    line = refusal(gpumon(driver=driver))
    assert line == "gpumon: stdout is not a terminal; use  gpumon once  or  gpumon once --json\n"
    assert refusal(gpumon("--demo"), 2) == line
    assert "no NVIDIA driver here (libnvidia-ml.so.1 not found)" in refusal(gpumon(driver=without), 3)
    assert "no NVIDIA driver here" in refusal(gpumon("once", driver=without), 3)


def test_configuration_file(tmp_path: Path) -> None:
    """`--init` writes the defaults once, `--path` says where, a changed key counts, GPUMON_CONFIG names a file."""
    path = tmp_path / "gpumon" / "config.toml"
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert gpumon("config", "--path", **home).stdout == f"{path}\n"
    assert gpumon("config", "--init", **home).stdout == f"wrote {path}\n"
    assert gpumon("config").stdout == path.read_text(encoding="utf-8")
    assert "exists already; nothing was changed" in refusal(gpumon("config", "--init", **home))
    path.write_text("interval_s = 2.5\n[rules.sw-thermal]\n", encoding="utf-8")
    assert "\ninterval_s = 2.5\n" in gpumon("config", **home).stdout
    assert "\ninterval_s = 5.0\n" in gpumon("config", "--interval", "5", **home).stdout
    assert "\ninterval_s = 2.5\n" in gpumon("config", GPUMON_CONFIG=str(path)).stdout
    assert "\ninterval_s = 2.5\n" in gpumon("config", "--config", str(path)).stdout
    assert "cannot be read" in refusal(gpumon("config", GPUMON_CONFIG=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("intervall_s = 2", "intervall_s: unknown key; did you mean interval_s?"),
        ('interval_s = "2"', "interval_s: expected `float`, got `str`"),
        ("interval_s = 0.01", "interval_s: expected `float` >= 0.1"),
        ('theme = "drak"', "theme: "),
        ("[rules.sw-termal]", "[rules.sw-termal]: unknown rule; did you mean sw-thermal?"),
        ("[rules.sw-thermal]\nbellow_pct = 3", "[rules.sw-thermal] bellow_pct: unknown key"),
        ('mute = ["sw-termal"]', "mute: 'sw-termal' is not a rule; did you mean sw-thermal?"),
        ("interval_s = ", "not valid TOML"),
    ],
)
def test_configuration_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    """An unknown key or a wrong type: exit 2, file, key and the nearest valid key in one line."""
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    assert cli.run(["--config", str(path), "config"]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"gpumon: {path}: ")
    assert line.count("\n") == 1
    assert said in line


@pytest.mark.parametrize("verb", [["once"], ["explain", "sw-thermal"], ["config"], ["--version"]])
def test_verbs_without_screen_load_no_screen(driver: FakeDriver, verb: list[str]) -> None:
    """`once`, `explain` and `config` never import what draws: it would cost more than they do."""
    code = (
        "import sys; from gpumon.__main__ import main; "
        f"sys.argv = ['gpumon', *{verb!r}]; code = main(); "
        "drawn = {name.partition('.')[0] for name in sys.modules} & {'textual', 'rich', 'plotext'}; "
        "print(sorted(drawn), code, file=sys.stderr)"
    )
    done = subprocess.run(
        python("-c", code), env={**default_environment(), **driver.env}, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[] 0\n"


def test_output_in_the_c_locale(driver: FakeDriver) -> None:
    """`LC_ALL=C` neither breaks `once` nor its JSON, also where Python does not turn UTF-8 on by itself."""
    for more in ({}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        for arguments in (["once"], ["once", "--json"]):
            done = gpumon(*arguments, driver=driver, LC_ALL="C", **more)
            assert (done.returncode, done.stderr) == (0, ""), done
