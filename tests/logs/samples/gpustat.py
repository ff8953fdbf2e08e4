"""What ``gpustat`` prints, with values of our own."""

from __future__ import annotations

USERS = """\
node07                      Fri Jun 30 11:52:07 2023  550.54.15
[0] NVIDIA A40              | 50°C,  73 % | 12894 / 46068 MB | ana(12874M) gdm(4M)
[1] NVIDIA A40              | 26°C,   0 % |    13 / 46068 MB | gdm(4M)
"""

FULL = """\
node07                      Fri Jun 30 11:52:09 2023  550.54.15
[0] NVIDIA A40              | 49'C,  30 %,  96 % (E:   7 %  D:   0 %),  175 / 300 W | 11896 / 46068 MB | \
ana:python/4242(11886M)
[1] NVIDIA A40              | 26'C,  ?? %,   0 % (E:   0 %  D:   0 %),   ?? / 300 W |    13 / 46068 MB |
"""

OWNERLESS = """\
[6] NVIDIA A40 | 52'C, 100 % | 10151 / 46068 MB | (null)
"""

SAMPLES = (USERS + FULL, FULL, OWNERLESS)
