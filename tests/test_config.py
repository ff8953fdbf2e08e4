"""The configuration: strict about names and types, exact about where, and written back as it is read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpumon import config
from gpumon.errors import UsageError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's limits, for these tests."""

    below_pct: float = 85.0
    """Mean utilization below which it may fire."""
    for_s: int = 60
    """How long, in seconds."""


LIMITS = {"sw-thermal": Limits, "data-starved": Limits}


def limits() -> config.KnownLimits:
    """What the rules declare."""
    return LIMITS


def no_limits() -> config.KnownLimits:
    """For files that name no rule: loading the rules would be a waste."""
    pytest.fail("the rules were asked for")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty configuration file."""
    return tmp_path / "config.toml"


def test_no_file_gives_the_defaults(tmp_path: Path) -> None:
    """Without a file every value is the default."""
    assert config.load(tmp_path / "absent.toml", no_limits) == config.Config()


def test_rules_are_asked_for_only_where_the_file_names_one(file: Path) -> None:
    """A file of other keys is read without them."""
    file.write_text("interval_s = 2\nmute = []\n", encoding="utf-8")
    assert config.load(file, no_limits) == config.Config(interval_s=2.0)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """A file that the user named and that is not there is an error naming it."""
    with pytest.raises(UsageError, match=r"absent\.toml: cannot be read"):
        config.load(tmp_path / "absent.toml", no_limits, must_exist=True)


def test_values_are_taken(file: Path) -> None:
    """Keys present replace the defaults, integers serve as floats, others stay."""
    file.write_text('interval_s = 2\nmute = ["data-starved"]\n[rules.sw-thermal]\nbelow_pct = 50\n', encoding="utf-8")
    read = config.load(file, limits)
    assert (read.interval_s, read.mute) == (2.0, ("data-starved",))
    assert read.rules == {"sw-thermal": Limits(below_pct=50.0)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervall_s = 1", r"config\.toml: intervall_s: unknown key; did you mean interval_s\?"),
        ("interval_s = '1'", r"config\.toml: interval_s: expected `float`, got `str`"),
        ("interval_s = 0.01", r"config\.toml: interval_s: expected `float` >= 0\.1"),
        ("theme = 'darkk'", r"config\.toml: theme: invalid enum value 'darkk'"),
        ("mute = ['sw-thermall']", r"config\.toml: mute: 'sw-thermall' is not a rule; did you mean sw-thermal\?"),
        ("[rules.sw-thermall]", r"config\.toml: \[rules\.sw-thermall\]: unknown rule; did you mean sw-thermal\?"),
        ("[rules]\nsw-thermal = 3", r"config\.toml: rules\.sw-thermal: expected a table"),
        ("rules = 3", r"config\.toml: rules: expected tables"),
        (
            "[rules.sw-thermal]\nbellow_pct = 3",
            r"config\.toml: \[rules\.sw-thermal\] bellow_pct: unknown key; did you mean below_pct\?",
        ),
        ("[rules.sw-thermal]\nfor_s = '60'", r"config\.toml: \[rules\.sw-thermal\] for_s: expected `int`, got `str`"),
        ("interval_s = ", r"config\.toml: not valid TOML: "),
        ("interval_s = 1\ninterval_s = 2", r"config\.toml: not valid TOML: "),
    ],
)
def test_a_fault_names_file_key_and_the_nearest_valid_key(file: Path, text: str, message: str) -> None:
    """Every kind of mistake is one line that says where it is and what was meant."""
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as raised:
        config.load(file, limits)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_text_is_refused(file: Path) -> None:
    """Bytes that are not UTF-8 are an error, not a crash."""
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not valid TOML"):
        config.load(file, limits)


def test_what_is_written_reads_back(file: Path) -> None:
    """Rendering and loading are inverse."""
    changed = config.Config(interval_s=0.5, theme="16", mute=("sw-thermal",), rules={"sw-thermal": Limits(for_s=9)})
    file.write_text(config.render(changed, LIMITS), encoding="utf-8")
    read = config.load(file, limits)
    assert msgspec.structs.replace(read, rules=changed.rules) == changed
    assert read.rules == {"sw-thermal": Limits(for_s=9), "data-starved": Limits()}


def test_every_key_is_explained() -> None:
    """Each key of the rendered file stands under a comment."""
    lines = config.render(config.Config(), {"sw-thermal": Limits}).splitlines()
    keys = [number for number, line in enumerate(lines) if " = " in line and not line.startswith("#")]
    assert len(keys) == 10
    assert all(lines[number - 1].startswith("# ") for number in keys)


def test_the_user_file_is_found_by_environment(tmp_path: Path) -> None:
    """GPUMON_CONFIG wins over XDG_CONFIG_HOME, which wins over the home directory."""
    assert config.default_path({"GPUMON_CONFIG": "/a/b.toml", "XDG_CONFIG_HOME": "/x"}) == Path("/a/b.toml")
    assert config.default_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "gpumon" / "config.toml"
    assert config.default_path({}) == Path.home() / ".config" / "gpumon" / "config.toml"
