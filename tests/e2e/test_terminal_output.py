"""What may reach the user's terminal: no control strings of others, no colour and no odd byte where none is wanted."""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path

import pytest
from live import Trainer, distinct_gpus, shown_gpus, start

from fakenvml import GIB, FakeDriver, Process, h100

HOSTILE_COMMS = [
    b"\x1b]0;PWN\x07",
    b"\x1b[31;5mX",
    b"\xc2\x9b2Jx",
    b"\xc2\x9d0;y\xc2\x9c",
    "a\u202eb".encode(),
    b"py\xff\x9b\x7f\xe2\x80\x8b",
    b"[/nope] tag",
    b"",
]
"""What any local user can name a process (PR_SET_NAME takes 15 bytes)."""

HOSTILE_ARGUMENTS = [
    b"py\x1b]52;c;ZWNobyBoaQ==\x07",
    b"\x1bP1$r\x1b\\",
    b"\x9b2J\xc2\x9b2J",
    "\u202eevil\u2066\ufeff".encode(),
    b"[@click=app.quit]name[/] bad [/nope] tag",
    b"A" * 100_000,
]

SECRETS = ["hf_abcdefghijklmnopqrstuvwx", "hunter2secret", "sk-abcdefghijklmnop1234"]

OWN = re.compile(r"\x1b\]11;\?\x1b\\|\x1b\]22;default\x07|\x1b\[[\x20-\x3f]*[\x40-\x7e]|\x1b[=>78]")
"""What gpumon itself sends: the question for the background, the pointer's shape, CSI sequences."""
UNWANTED = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

CSI_COLOUR = re.compile(rb"\x1b\[([\d;:]*)m")


def test_hostile_names(tmp_path: Path) -> None:
    """Names and arguments full of terminal controls: none reaches the terminal, the program goes on, keys work."""
    count = len(HOSTILE_COMMS)
    driver = FakeDriver(tmp_path, [h100().but(name="H100 \x1b]0;GPU\x07\u202e"), *distinct_gpus(count - 1)])
    trainers = [
        Trainer(comm=comm, argv0=os.fsdecode(argument), arguments=[os.fsdecode(each) for each in HOSTILE_ARGUMENTS])
        for comm, argument in zip(HOSTILE_COMMS, itertools.cycle(HOSTILE_ARGUMENTS[:5]), strict=False)
    ]
    try:
        for gpu, trainer in enumerate(trainers):
            driver.set_processes(gpu, [Process(trainer.pid, GIB, 5)])
        with start(driver, width=200, height=60) as program:
            for trainer in trainers:
                program.wait_for(f" {trainer.pid} ")
            assert "[@click=app.quit]name[/] bad [/nope] tag" in program.text
            program.type("0\r")
            program.wait_for("› GPU 0 ")
            program.read_until_quiet()
            program.type(b"\x1b")
            program.wait_for("─ HOST ")
            program.type("\t")
            program.wait_for("K signal")
            # The name itself is said where a signal was sent.
            for trainer in trainers[:6]:
                program.type("K")
                program.wait_for(f" pid {trainer.pid} ")
                program.type(b"\x1b[C\r")
                program.wait_for(f"SIGTERM sent to {trainer.pid} ")
                assert trainer.process.wait(10) == -signal.SIGTERM
                program.type("j")
            program.type("?")
            program.wait_for("gpumon help")
            program.type("q")
            assert program.wait_for_exit() == 0
            output = program.output.decode("utf-8")
        assert "\x1b[31;5m" not in output
        assert UNWANTED.findall(OWN.sub("", output)) == []
    finally:
        for trainer in trainers:
            trainer.end()


def test_secrets_are_blotted_out(tmp_path: Path) -> None:
    """Tokens, passwords and keys in a command line are shown as ***, what stands around them as it is."""
    driver = FakeDriver(tmp_path, distinct_gpus(1))
    arguments = [
        f"--hf-token={SECRETS[0]}",
        "--db-password",
        SECRETS[1],
        f"https://user:{SECRETS[1]}@example.org/x",
        SECRETS[2],
        "--tokenizer=gpt2",
    ]
    with Trainer(arguments=arguments, argv0="train") as trainer:
        driver.set_processes(0, [Process(trainer.pid, GIB, 5)])
        with start(driver, width=200, height=60) as program:
            program.wait_for("--hf-token=*** --db-password *** https://***@example.org/x *** --tokenizer=gpt2")
            program.type("\r")
            program.wait_for("› GPU 0 ")
            program.read_until_quiet()
            for secret in SECRETS:
                assert secret.encode() not in program.output


@pytest.mark.parametrize("how", ["NO_COLOR", "--no-color", "mono"])
def test_no_colour(tmp_path: Path, how: str) -> None:
    """NO_COLOR, --no-color and theme mono: bold and reverse at most, never a colour; states are words."""
    config = tmp_path / "config.toml"
    config.write_text('theme = "mono"\n', encoding="utf-8")
    arguments = {"NO_COLOR": [], "--no-color": ["--no-color"], "mono": ["--config", str(config)]}[how]
    driver = FakeDriver(tmp_path, distinct_gpus(3))
    with start(driver, *arguments, **({"NO_COLOR": "1"} if how == "NO_COLOR" else {})) as program:
        program.wait_for("2 busy")
        driver.queue_xid(gpu=1, xid=79)
        driver.set("gpu.1.lost", 1)
        program.wait_for("■ CRITICAL  GPU 1 lost since ")
        program.wait_for(" 1 lost ")
        program.type("a")
        program.wait_for("gpu-lost GPU 1")
        program.type("?")
        program.wait_for("gpumon help")
        program.read_until_quiet()
        used = {code for codes in CSI_COLOUR.findall(program.output) for code in codes.split(b";")}
        assert used <= {b"", b"0", b"1", b"7", b"22", b"27"}, used


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--ascii"], {}), ([], {"LC_ALL": "C"}), ([], {"LANG": "C"}), ([], {"LC_ALL": "POSIX", "PYTHONUTF8": "0"})],
    ids=["--ascii", "LC_ALL=C", "LANG=C", "no-utf8"],
)
def test_ascii(tmp_path: Path, arguments: list[str], environment: dict[str, str]) -> None:
    """`--ascii`, or a locale that is not UTF-8: every byte is below 128, and the numbers are all there."""
    driver = FakeDriver(tmp_path, distinct_gpus(2))
    with Trainer(workers=2, arguments=["--naïve=é", "日本"]) as trainer:
        driver.set_processes(0, [Process(trainer.pid, 5 * GIB, 40)])
        with start(driver, *arguments, **environment) as program:
            program.wait_for(f" {trainer.pid} ")
            assert shown_gpus(program.text)[1].power == 311
            driver.set("gpu.1.lost", 1)
            program.wait_for("[X CRITICAL] GPU 1 lost")
            for keys, text in (("a", "gpu-lost GPU 1"), ("0\r", "> GPU"), ("?", "gpumon help")):
                program.type(keys)
                program.wait_for(text)
                program.type(b"\x1b\x1b")
                program.read_until_quiet()
            program.type("q")
            assert program.wait_for_exit() == 0
            odd = {byte for byte in program.output if byte > 127}
            assert not odd, (odd, program.text)
