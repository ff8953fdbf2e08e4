"""The command line: picks a source and a consumer; the only place that wires them."""

from __future__ import annotations

import argparse
import difflib
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from gpumon import __version__
from gpumon.errors import DriverMissing, GpumonError, NotATerminal, UsageError

if TYPE_CHECKING:
    from gpumon.commands.recording import Recorder
    from gpumon.config import Config, KnownLimits
    from gpumon.ui.sampler import PacedSource

FIRST_READING_S = 2.0
"""A driver that has said nothing by then is there, whatever else is wrong with it."""

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""What writing to stdout may end with: such an error names no file."""

CRASHED = 70
"""Exit code of a fault of ours (EX_SOFTWARE)."""

EPILOG = """\
exit codes: 0 done, 2 usage, unreadable input or unwritable output, 3 no driver or GPU, 70 a crash of gpumon itself;
diagnose: 0 healthy, 1 findings of warning or worse
keys, colours and rule limits: gpumon config; what a rule means: gpumon explain RULE
"""


class _Parser(argparse.ArgumentParser):
    """argparse with errors of one line and a suggestion."""

    given: Sequence[str] = ()
    """The command line, where it is known."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()
        option = next((word for word in unknown if word.startswith("-")), "")
        raise UsageError(f"{message}{self._nearest(option) if unknown != message.split() else ''}")

    def _nearest(self, word: str) -> str:
        """The option that was probably meant, of this parser and of its verbs."""
        verbs = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
        parsers = [self, *(each for verb in verbs for each in verb.choices.values())]
        options = {option for each in parsers for option in each._option_string_actions}  # noqa: SLF001
        close = difflib.get_close_matches(word, options, n=1)
        return f"; did you mean {close[0]}?" if close else ""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            # `--intervall 2`: what follows an unknown option was taken for the verb.
            at = self.given.index(str(value)) if value in self.given else 0
            before = self.given[at - 1] if at else ""
            if before.startswith("--") and not any(each.startswith(before) for each in self._option_string_actions):
                self.error(f"unrecognized arguments: {before}")
            close = difflib.get_close_matches(str(value), [str(choice) for choice in action.choices], n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(map(str, action.choices))}"
            name = action.metavar or action.dest
            raise UsageError(f"{name}: {value!r} is not known; {hint}")


def parser() -> _Parser:
    """The command line as declared; ``gpumon --help`` prints it."""
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("common options")
    group.add_argument("--config", metavar="FILE", type=Path, help="configuration file (default: the user's)")
    group.add_argument("--interval", metavar="SECONDS", type=float, help="between samples, 0.1 to 60 (default 1)")
    group.add_argument("--gpus", metavar="LIST", help="indices, UUIDs or MIG UUIDs, comma-separated (default all)")
    group.add_argument("--visible", action="store_true", help="only the GPUs of CUDA_VISIBLE_DEVICES")
    group.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    group.add_argument("--no-color", action="store_true", help="no colour (NO_COLOR does the same)")
    group.add_argument("--read-only", action="store_true", help="never offer to signal a process")
    group.add_argument("--no-bell", action="store_true", help="do not ring the bell for a new critical alert")
    group.add_argument("--log", metavar="FILE", type=Path, help="write diagnostics of gpumon itself to FILE")

    top = _Parser(
        prog="gpumon",
        parents=[common],
        argument_default=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Is the training run healthy, what is wrong, why, and what to do. No verb opens the live screen.",
        epilog=EPILOG,
    )
    top.add_argument("--version", "-V", action="store_true", help="print the version")
    top.add_argument("--demo", metavar="SCENARIO", nargs="?", const="", help="simulated GPUs; `--demo list` names them")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser, title="verbs")
    add_verb = functools.partial(verbs.add_parser, parents=[common], argument_default=argparse.SUPPRESS)
    once = add_verb("once", help="one reading of everything, for scripts")
    once.add_argument("--json", action="store_true", help="as JSON: one snapshot")
    diagnose = add_verb("diagnose", help="findings without a screen: live, or from traces and logs")
    diagnose.add_argument(
        "files", metavar="FILE", nargs="*", type=Path, help="traces and logs of one machine; - is stdin"
    )
    diagnose.add_argument("--for", dest="seconds", metavar="TIME", help="how long to watch live (default 60s)")
    diagnose.add_argument("--format", choices=("text", "json"), help="text for people (default) or json for scripts")
    diagnose.add_argument("--json", action="store_true", help="the same as --format json")
    replay = add_verb("replay", help="the live screen on a recording or a log")
    replay.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="traces and logs of one machine; - is stdin"
    )
    replay.add_argument(
        "--at", metavar="TIME", help="play from 14:02, a date and time, or start (default: show the end)"
    )
    replay.add_argument("--speed", metavar="N", type=float, help="times as fast as it was (default 1)")
    run_verb = add_verb("run", help="a command with the probe switched on: gpumon run -- python train.py")
    run_verb.add_argument("--summary", action="store_true", help="at its end say on stderr what was seen")
    run_verb.add_argument(
        "--record",
        metavar="FILE",
        type=Path,
        help="meanwhile record all that gpumon sees, to diagnose and replay (.gz)",
    )
    run_verb.add_argument("command", metavar="CMD", nargs=argparse.REMAINDER, help="after --; its exit code is ours")
    attach = add_verb("attach", help="switch the probe on in a Python process that runs already (Python 3.14+)")
    attach.add_argument("pid", metavar="PID", type=int, help="its number")
    attach.add_argument(
        "--sample",
        action="store_true",
        help="do not enter it; look at its stack from outside now and then, with py-spy",
    )
    attach.add_argument("--for", dest="seconds", metavar="TIME", help="how long to sample (default: until Ctrl-C)")
    explain = add_verb("explain", help="what a rule sees, why it matters, what to do")
    explain.add_argument("rule", metavar="RULE", nargs="?", default=None, help="a rule's name; without it, the list")
    config = add_verb("config", help="the effective configuration, commented")
    config.add_argument("--init", action="store_true", help="write it to the user's file")
    config.add_argument("--path", action="store_true", help="print the file's path")
    return top


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code. Errors of use are one line on stderr."""
    try:
        code = _do(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except GpumonError as error:
        _complain(str(error))
        return error.exit_code
    except BrokenPipeError:  # `gpumon once | head`: the reader has enough
        _give_up(sys.stdout)
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - a fault of ours: the traceback, and an exit code of its own
        if isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE:
            return cannot_write(error)
        sys.excepthook(*sys.exc_info())
        return CRASHED
    return code


def _do(arguments: Sequence[str]) -> int:
    arguments, command = _without_command(arguments)
    if sys.stdout is None and command is None:
        raise UsageError("stdout is closed: there is nowhere to print to")
    try:
        # Without a word, as it is started most of the time, there is nothing to take apart.
        options = _parsed(arguments) if arguments else argparse.Namespace(verb=None)
    except SystemExit:  # --help, which is printed
        return 0
    if command is not None:
        options.command = command
    return _verb(options)(options)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    command_line = parser()
    command_line.given = arguments
    return command_line.parse_args(arguments)


def _without_command(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """What is gpumon's of `gpumon run OPTIONS -- CMD …`, and the command: its words are its own."""
    if "run" not in arguments or "--" not in arguments[arguments.index("run") :]:
        return arguments, None
    at = arguments.index("--", arguments.index("run"))
    return arguments[:at], arguments[at + 1 :]


def cannot_write(error: OSError) -> int:
    """Stdout takes nothing (a full disk, most of the time): say so, and end without trying again."""
    _complain(f"cannot write to stdout: {error.strerror}")
    _give_up(sys.stdout)
    return UsageError.exit_code


def _complain(text: str) -> None:
    """One line on stderr, if there is one that takes it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"gpumon: {text}\n")
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Python flushes it once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _verb(options: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    if "version" in options:
        return _version
    verbs = {
        "once": _once,
        "diagnose": _diagnose,
        "replay": _replay,
        "run": _run,
        "attach": _attach,
        "explain": _explain,
        "config": _configuration,
    }
    return verbs[options.verb] if options.verb is not None else _screen


# --- the verbs -----------------------------------------------------------------------------------


def _version(_options: argparse.Namespace) -> int:
    sys.stdout.write(f"gpumon {__version__}\n")
    return 0


def _once(options: argparse.Namespace) -> int:
    from gpumon.commands import once

    return once.run(as_json="json" in options, gpus=_gpus(options))


def _diagnose(options: argparse.Namespace) -> int:
    from gpumon.commands import diagnose

    effective = _effective(options)
    as_json = "json" in options or getattr(options, "format", "text") == "json"
    if getattr(options, "files", ()):
        if "seconds" in options:
            raise UsageError("--for: watches live; files are read to their end")
        return diagnose.files(options.files, effective, as_json=as_json)
    seconds = diagnose.seconds_of(getattr(options, "seconds", "60s"))
    _require_driver(_gpus(options))
    return diagnose.live(_live(effective, _gpus(options)), seconds, effective, as_json=as_json)


def _replay(options: argparse.Namespace) -> int:
    from gpumon.commands import replay

    source = replay.source_of(options.files, getattr(options, "at", None), getattr(options, "speed", None))
    return _show(lambda: source, _effective(options), options)


def _run(options: argparse.Namespace) -> int:
    from gpumon.commands import run as running

    make_recorder = _recorder(options) if "record" in options else None
    return running.run(options.command, with_summary="summary" in options, make_recorder=make_recorder)


def _recorder(options: argparse.Namespace) -> Callable[[], Recorder]:
    from gpumon.commands.recording import Recorder

    effective, gpus = _effective(options), _gpus(options)
    return lambda: Recorder(options.record, options.command, effective, gpus)


def _attach(options: argparse.Namespace) -> int:
    from gpumon.commands import attach, sampling
    from gpumon.commands.diagnose import seconds_of

    if "sample" in options:
        return sampling.run(options.pid, seconds_of(options.seconds) if "seconds" in options else None)
    if "seconds" in options:
        raise UsageError("--for: says how long to sample; it goes with --sample")
    return attach.run(options.pid)


def _explain(options: argparse.Namespace) -> int:
    from gpumon.commands import explain

    return explain.run(options.rule)


def _configuration(options: argparse.Namespace) -> int:
    from gpumon import config
    from gpumon.commands import configuration

    path = options.config if "config" in options else config.default_path()
    if "path" in options:
        return configuration.print_path(path)
    if "init" in options:
        return configuration.write_defaults(path, _limits())
    return configuration.print_effective(_effective(options), _limits())


def _screen(options: argparse.Namespace) -> int:
    """The live screen, or the demo where it is asked for or where there is no driver."""
    effective = _effective(options)
    if "demo" in options:
        if "gpus" in options or "visible" in options:
            raise UsageError("--gpus and --visible choose among this machine's GPUs; the demo brings its own")
        return _demo(options.demo, effective, options)
    try:
        return _show(lambda: _live(effective, _gpus(options)), effective, options)
    except DriverMissing as missing:
        notice = f"{missing} Opening the DEMO; q quits."
        sys.stderr.write(f"gpumon: {notice}\n")
        return _demo("", effective, options, notice=notice)
    except NotATerminal:
        _require_driver(_gpus(options))
        raise


def _demo(scenario: str, effective: Config, options: argparse.Namespace, notice: str | None = None) -> int:
    from gpumon.sources import demo

    if scenario == "list":
        width = max(map(len, demo.SCENARIOS))
        lines = [f"{name:<{width}}  {told.description}" for name, told in demo.SCENARIOS.items()]
        sys.stdout.write("\n".join(lines) + "\n")
        return 0
    chosen = demo.scenario_named(scenario or demo.DEFAULT).name
    return _show(lambda: demo.DemoSource(chosen, interval_s=effective.interval_s), effective, options, notice)


def _show(
    make_source: Callable[[], PacedSource],
    effective: Config,
    options: argparse.Namespace,
    notice: str | None = None,
) -> int:
    from gpumon.ui.run import run_app

    if "log" in options:
        _log_to(options.log)
    return run_app(make_source, effective, no_color="no_color" in options, notice=notice)


def _live(effective: Config, gpus: Sequence[str] | None) -> PacedSource:
    from gpumon.sources.host.kernel_log import KernelLog
    from gpumon.sources.host.reader import HostReader
    from gpumon.sources.inbox.inbox import Inbox
    from gpumon.sources.live import LiveSource
    from gpumon.sources.nvml.reader import NvmlReader

    reader = NvmlReader(effective.interval_s, gpus)
    reader.start()
    return LiveSource(reader, HostReader(effective.interval_s), effective.interval_s, KernelLog(), Inbox())


def _require_driver(gpus: Sequence[str] | None) -> None:
    """Raise NoSourceError where there is nothing to watch: that matters more than the missing terminal."""
    from gpumon.sources.nvml.reader import NvmlReader

    reader = NvmlReader(gpus=gpus)
    reader.start()
    try:
        reader.wait_until_ready(FIRST_READING_S)
    finally:
        reader.close()


# --- the options ---------------------------------------------------------------------------------


def _effective(options: argparse.Namespace) -> Config:
    """The configuration with the command line's options applied."""
    import msgspec

    from gpumon import config

    is_named = "config" in options
    path = options.config if is_named else config.default_path()
    effective = config.load(path, _limits, must_exist=is_named or "GPUMON_CONFIG" in os.environ)
    changes: dict[str, object] = {}
    if "interval" in options:
        if not config.INTERVAL_MIN_S <= options.interval <= config.INTERVAL_MAX_S:
            limits_text = f"{config.INTERVAL_MIN_S:g} to {config.INTERVAL_MAX_S:g}"
            raise UsageError(f"--interval: {options.interval:g} is not within {limits_text} seconds")
        changes["interval_s"] = options.interval
    if "ascii" in options:
        changes["ascii"] = True
    if "read_only" in options:
        changes["read_only"] = True
    if "no_bell" in options:
        changes["bell"] = False
    return msgspec.structs.replace(effective, **changes)


def _limits() -> KnownLimits:
    from gpumon.rules import RULES

    return {rule.id: rule.limits for rule in RULES}


def _gpus(options: argparse.Namespace) -> list[str] | None:
    """The GPUs that were named; None for all."""
    if "gpus" in options:
        return [name.strip() for name in options.gpus.split(",") if name.strip()]
    if "visible" in options:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return None
        named = [name.strip() for name in visible.split(",") if name.strip()]
        if not named or "-1" in named:
            raise UsageError(f"--visible: CUDA_VISIBLE_DEVICES={visible!r} hides every GPU")
        return named
    return None


def _log_to(path: Path) -> None:
    import logging

    try:
        logging.basicConfig(filename=path, level=logging.DEBUG, format="%(asctime)s %(threadName)s %(message)s")
    except OSError as error:
        raise UsageError(f"--log: {path} cannot be written: {error.strerror}") from None
