"""Values are written with the unit their name carries and digits that do not jump."""

from __future__ import annotations

import msgspec
import pytest

from gpumon import model, units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (41.9, "41 s"), (60, "1 min"), (3599, "59 min"), (8040, "2h14m"), (273_600, "3d04h")],
)
def test_durations(seconds: float, text: str) -> None:
    """Durations take the shortest of four forms."""
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("temperature_c", 87, "87 °C"),
        ("memory_used_bytes", 76.1 * 2**30, "76.1 G"),
        ("throttled_pct.sw_thermal", 96.2, "96%"),
        ("budget.data_pct", 44, "44%"),
        ("pcie_rx_bytes_per_s", 141e6, "141 M/s"),
        ("sm_clock_mhz", 1170, "1170 MHz"),
        ("power_w", None, "–"),
    ],
)
def test_a_value_is_written_with_the_unit_of_its_name(field: str, value: float | None, text: str) -> None:
    """The suffix decides unit and digits; missing is a dash."""
    assert units.value(field, value) == text


@pytest.mark.parametrize("value", [0, 1, 12e6, 141e6, 999.4e6, 999.6e6, 12.3e9, 99.9e9, 400e9])
def test_rates_keep_their_width(value: float) -> None:
    """A rate is seven characters whatever its magnitude, so M to G moves nothing."""
    assert len(units.rate(value)) == 7


@pytest.mark.parametrize("record", [model.Gpu, model.Process, model.Host, model.Snapshot])
def test_every_float_field_has_a_known_suffix(record: type) -> None:
    """A float field whose name carries no unit is refused."""
    for field in msgspec.structs.fields(record):
        if "float" in str(field.type):
            assert units.unit_of(field.name) or field.name in units.UNITLESS, field.name
