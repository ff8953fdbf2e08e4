"""``dcgmi dmon``, with values of our own."""

from __future__ import annotations

USUAL = """\
#Entity   GPUTL        MCUTL        POWER        TOTEC          TMPTR   FBUSD      SMACT        TENSO        PCIRX
ID                                  W            mJ             C
GPU 0     97           55           612.345      455497156      61      61000      0.912        0.412        45987793
GPU 1     0            0            75.100       255497156      41      0          N/A          N/A          N/A
GPU 0     98           56           614.000      456111156      61      61000      0.913        0.413        46987793
GPU 1     0            0            75.000       255572156      41      0          0.000        0.000        1000
GPU-I 3   N/A          N/A          N/A          N/A            N/A     3000       0.500        0.100        N/A
"""

SAMPLES = (USUAL,)
