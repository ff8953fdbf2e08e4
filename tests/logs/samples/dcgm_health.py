"""What DCGM's health watch writes, with values of our own."""

from __future__ import annotations

ENGINE = """\
2026-03-02 00:00:00.100 ERROR [77:79] [[Health]] Detected a WARNING in health system Thermal: 'Detected clocks event due to thermal violation in GPU 5. Verify that the cooling on this machine is functional'
"""  # noqa: E501 - as wide as it is

TABLE = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| -> 3                      | Warning                                                  |
|       -> Memory system    | Detected 2 volatile double-bit ECC error(s) in GPU 3.    |
|       -> Power system     | Detected clock throttling due to power violation in GPU 3 |
+---------------------------+----------------------------------------------------------+
"""

SAMPLES = (ENGINE, TABLE)
