"""Error counters, recovery action and modes of a GPU, over the fake driver."""

from __future__ import annotations

from nvml_readers import MakeDriver, MakeReader, load, second_gpus

from fakenvml import h100, old_driver, rtx4090


def test_healthy_gpu_with_ecc(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A data-centre GPU without a fault says so: zeros and flags that are False, never None."""
    load(fake_driver([h100()]))
    (gpu,) = second_gpus(start())
    assert (gpu.ecc_enabled, gpu.ecc_enabled_pending, gpu.persistence) == (True, True, True)
    assert (gpu.ecc_uncorrected, gpu.ecc_corrected, gpu.ecc_sram_uncorrected) == (0, 0, 0)
    assert (gpu.remapped_rows_corrected, gpu.remapped_rows_uncorrected) == (0, 0)
    assert (gpu.remap_pending, gpu.remap_failed) == (False, False)
    assert gpu.recovery_action == 0
    assert gpu.compute_capability == "9.0"


def test_sick_gpu(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Each counter and flag is read from its own place."""
    sick = h100().but(
        {
            "ecc_mode_pending": 0,
            "ecc_volatile_uncorrected": 3,
            "ecc_volatile_corrected": 41,
            "ecc_aggregate_uncorrected.7": 5,
            "remapped_rows_corrected": 2,
            "remapped_rows_uncorrected": 7,
            "remap_pending": 1,
            "remap_failed": 1,
            "recovery_action": 4,
            "persistence": 0,
        }
    )
    load(fake_driver([sick]))
    (gpu,) = second_gpus(start())
    assert (gpu.ecc_enabled, gpu.ecc_enabled_pending, gpu.persistence) == (True, False, False)
    assert (gpu.ecc_uncorrected, gpu.ecc_corrected, gpu.ecc_sram_uncorrected) == (3, 41, 5)
    assert (gpu.remapped_rows_corrected, gpu.remapped_rows_uncorrected) == (2, 7)
    assert (gpu.remap_pending, gpu.remap_failed) == (True, True)
    assert gpu.recovery_action == 4


def test_consumer_card_counts_nothing(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Without ECC and row remapping there is no count, and the rest is there."""
    load(fake_driver([rtx4090()]))
    (gpu,) = second_gpus(start())
    counts = (gpu.ecc_uncorrected, gpu.ecc_corrected, gpu.ecc_sram_uncorrected, gpu.remapped_rows_uncorrected)
    assert counts == (None, None, None, None)
    assert (gpu.ecc_enabled, gpu.remap_pending, gpu.remap_failed) == (None, None, None)
    assert gpu.recovery_action == 0
    assert gpu.compute_capability == "8.9"


def test_driver_without_the_fields(fake_driver: MakeDriver, start: MakeReader) -> None:
    """An old driver has no recovery action; where ECC is on, the old calls answer for the fields."""
    ecc = {"ecc_mode": 1, "ecc_volatile_uncorrected": 2, "ecc_volatile_corrected": 9, "field_max": 0}
    rows = {"remapped_rows_corrected": 0, "remapped_rows_uncorrected": 1, "remap_pending": 1, "remap_failed": 0}
    load(fake_driver([old_driver().but({**ecc, **rows})]))
    (gpu,) = second_gpus(start())
    assert (gpu.ecc_uncorrected, gpu.ecc_corrected) == (2, 9)
    assert (gpu.remapped_rows_uncorrected, gpu.remap_pending, gpu.remap_failed) == (1, True, False)
    assert gpu.recovery_action is None
