"""What the user may set: config.toml read into a frozen Config, and written back with each key's explanation."""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from gpumon.errors import UsageError

INTERVAL_MIN_S, INTERVAL_MAX_S = 0.1, 60.0

KnownLimits = Mapping[str, type[msgspec.Struct]]
"""Rule id -> its Limits class, which declares and validates ``[rules.ID]``."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configuration; every field has its explanation beneath it."""

    interval_s: Annotated[float, msgspec.Meta(ge=INTERVAL_MIN_S, le=INTERVAL_MAX_S)] = 1.0
    """Seconds between two samples, 0.1 to 60. Keys: i."""
    span_s: Annotated[int, msgspec.Meta(ge=60, le=864_000)] = 600
    """Seconds that the charts show at start; the next longer step of the span ladder is taken. Keys: + -."""
    theme: Literal["auto", "dark", "light", "high-contrast", "16", "mono"] = "auto"
    """Colours: auto asks the terminal whether it is light or dark; 16 and mono are for terminals that have no more."""
    ascii: bool = False
    """Draw with ASCII characters only (always so where the locale is not UTF-8)."""
    bell: bool = True
    """Ring the terminal's bell once for each new critical alert."""
    clipboard: bool = False
    """Let y copy a fix through the terminal (OSC 52); otherwise the command is shown on a line of its own."""
    read_only: bool = False
    """Never offer to signal a process."""
    mute: tuple[str, ...] = ()
    """Rules that never alert, by name: gpumon explain lists them."""

    rules: Mapping[str, msgspec.Struct] = {}
    """Limits of the rules that have a table [rules.NAME]; the others keep their defaults."""


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the user's file is looked for: $GPUMON_CONFIG, else $XDG_CONFIG_HOME/gpumon/config.toml."""
    named = environment.get("GPUMON_CONFIG")
    if named:
        return Path(named)
    base = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "gpumon" / "config.toml"


def load(path: Path | None, limits: Callable[[], KnownLimits], *, must_exist: bool = False) -> Config:
    """Read a configuration file; absent keys keep their defaults.

    Args:
        path: the file; None gives the defaults.
        limits: asked for the rules only where the file names one: loading them takes time.
        must_exist: the user named this file, so its absence is an error.

    Raises:
        UsageError: unreadable file, unknown key or wrong type, naming file, key and the nearest valid key.
    """
    if path is None or (not must_exist and not path.exists()):
        return Config()
    table = _parsed(path)
    rules = table.pop("rules", {})
    values = _checked(Config, table, where=f"{path}:", leave_out=("rules",))
    if not isinstance(rules, dict):
        raise UsageError(f"{path}: rules: expected tables such as [rules.sw-thermal]")
    muted = values.get("mute", ())
    known = limits() if muted or rules else {}
    for name in muted:
        if name not in known:
            raise UsageError(f"{path}: mute: {name!r} is not a rule{_nearest(name, known)}")
    given: dict[str, msgspec.Struct] = {}
    for rule, limit_table in rules.items():
        if rule not in known:
            raise UsageError(f"{path}: [rules.{rule}]: unknown rule{_nearest(rule, known)}")
        if not isinstance(limit_table, dict):
            raise UsageError(f"{path}: rules.{rule}: expected a table [rules.{rule}]")
        given[rule] = known[rule](**_checked(known[rule], limit_table, where=f"{path}: [rules.{rule}]"))
    return Config(**values, rules=given)


def _parsed(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def _checked(
    declared: type[msgspec.Struct], table: Mapping[str, Any], *, where: str, leave_out: Iterable[str] = ()
) -> dict[str, Any]:
    """The table's values converted to the declared types; the first fault raises UsageError."""
    hints = get_type_hints(declared, include_extras=True)
    known = [name for name in declared.__struct_fields__ if name not in leave_out]
    values: dict[str, Any] = {}
    for key, raw in table.items():
        if key not in known:
            raise UsageError(f"{where} {key}: unknown key{_nearest(key, known)}")
        try:
            values[key] = msgspec.convert(raw, hints[key])
        except msgspec.ValidationError as error:
            text = str(error)
            raise UsageError(f"{where} {key}: {text[0].lower()}{text[1:]}") from None
    return values


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(names)}" if len(names) <= 12 else ""


def render(config: Config, limits: KnownLimits) -> str:
    """The configuration as a commented config.toml that reads back to the same values, all rules' limits included."""
    lines = [
        "# gpumon's configuration, every key explained. Keep the lines you change in ~/.config/gpumon/config.toml",
        "# (or in a file named with --config or GPUMON_CONFIG); a key that is absent has its default.",
        "",
    ]
    for name, note in _notes(Config).items():
        if name != "rules":
            lines += _commented(note, name, getattr(config, name))
    for rule, declared in limits.items():
        if declared.__struct_fields__:
            in_force = config.rules.get(rule) or declared()
            lines.append(f"[rules.{rule}]")
            for name, note in _notes(declared).items():
                lines += _commented(note, name, getattr(in_force, name))
    return "\n".join(lines).rstrip() + "\n"


def _commented(note: str, name: str, value: object) -> list[str]:
    return [*(f"# {line}" for line in note.splitlines()), f"{name} = {_toml(value)}", ""]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def _notes(declared: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> the docstring written beneath it in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(declared))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for statement, following in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_note = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            notes[statement.target.id] = inspect.cleandoc(str(following.value.value)) if is_note else ""  # type: ignore[union-attr]
    return notes
