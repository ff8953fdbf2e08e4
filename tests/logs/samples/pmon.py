"""``nvidia-smi pmon`` of several generations of the driver, with values of our own."""

from __future__ import annotations

USUAL = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command 
# Idx           #    C/G      %      %      %      %      %      %    name 
    0       4100     C     93     40      -      -      -      -    python3        
    0       4101     G      -      -      -      -      -      -    Xorg           
    1          -     -      -      -      -      -      -      -    -              
    0       4100     C     94     41      -      -      -      -    python3        
    0       4101     G      -      -      -      -      -      -    Xorg           
    1       4200   C+G      5      1      -      -      -      -    NVIDIA Share.exe
"""  # noqa: W291 - nvidia-smi ends its lines so

WITH_MEMORY = """\
#Date        Time         gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
#YYYYMMDD    HH:MM:SS     Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
 20260301    10:00:00       0       4100     C     93     40      -      -      -      -  20480      0    python3
 20260301    10:00:00       0       4102     C      2      0      -      -      -      -    512      0    my tool
 20260301    10:00:02       0       4100     C     95     40      -      -      -      -  20480      0    python3
"""

OLD_MEMORY = """\
# gpu     pid  type    fb   command
# Idx       #   C/G    MB   name
    0       -     -     -   -
    1   38148     C   284   train
"""

HEADLESS = """\
    0       4100     C     93     40      -      -      -      -    python3
    0       4100     C     90     40      -      -      -      -    python3
"""

SAMPLES = (USUAL, WITH_MEMORY, OLD_MEMORY, HEADLESS)
