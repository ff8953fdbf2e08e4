"""DCGM's health watch."""

from __future__ import annotations

from gpumon.logs.dcgm_health import DcgmHealth
from gpumon.logs.reading import Place
from tests.logs.feeding import feed
from tests.logs.samples.dcgm_health import ENGINE, TABLE


def test_a_warning_of_the_host_engine() -> None:
    fed = feed(DcgmHealth, ENGINE)
    assert [one.gpus for one in fed.readings] == [((Place(5), {"clocks_event_reasons": ("sw_thermal",)}),)]
    assert fed.others == []


def test_a_report() -> None:
    readings = feed(DcgmHealth, TABLE).readings
    assert [dict(one.gpus)[Place(3)] for one in readings] == [
        {"ecc_uncorrected": 2},
        {"clocks_event_reasons": ("sw_power_cap",)},
    ]


def test_other_lines_do_not_begin_it() -> None:
    lines = ["Detected a WARNING in health system Memory", "GPU 3 Detected nothing"]
    assert feed(DcgmHealth, "\n".join(lines)).others == lines
