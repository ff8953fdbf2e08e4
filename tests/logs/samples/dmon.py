"""``nvidia-smi dmon`` of several generations of the driver and selections of columns, with values of our own."""

from __future__ import annotations

USUAL = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk 
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz 
    0    301     61     70     97     55      0      0      0      0   1593   1980 
    1    298     60      -     88     51      0      0      0      0   1593   1965 
    0    305     61     71     98     56      0      0      0      0   1593   1980 
    1     75     41      -      -      0      0      0      0      0   1593    345 
"""  # noqa: W291 - nvidia-smi ends its lines so

EVERYTHING = """\
#Date        Time         gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol     fb   bar1   ccpm  sbecc  dbecc    pci  rxpci  txpci
#YYYYMMDD    HH:MM:SS     Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool     MB     MB     MB   errs   errs   errs   MB/s   MB/s
 20260301    23:59:59       0    188     84      -     93     60      0      0      0      0   9501   1410     37      1  20480     12      0      3      0      7   1200     90
 20260302    00:00:00       0    187     85      -     94     60      0      0      0      0   9501   1395     41      0  20481     12      0      3      1      7   1100     80
"""  # noqa: E501 - as wide as it is

OLD = """\
#Date       Time        gpu   pwr gtemp mtemp    sm   mem   enc   dec    fb  bar1  mclk  pclk rxpci txpci
#YYYYMMDD   HH:MM:SS    Idx     W     C     C     %     %     %     %    MB    MB   MHz   MHz  MB/s  MB/s
 20190612   11:01:02      0    64    43    41    24    28     0     0     0     0   877  1530     0     0
 20190612   11:01:03      0   176    44    44    96   100     0     0 11181     5   877  1530    12     3
"""

OLDEST = """\
# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk pviol tviol    fb  bar1 sbecc dbecc   pci rxpci txpci
# Idx     W     C     %     %     %     %   MHz   MHz     %  bool    MB    MB  errs  errs  errs  MB/s  MB/s
    0     -    50    91    66     0     0  3504  1784     0     0  3945     2     -     -     0  1732   535
    1     -    47     0     0     0     0  3504  1341     0     0  3741     2     -     -     0     0     0
"""

GPM = """\
#Time        gpu    pwr  gtemp  mtemp      gract    smutil     smocc    mmaact      dram      fp64      fp32     pcitx     pcirx     nvlrx     nvltx
#HH:MM:SS    Idx      W      C      C      GPM:%     GPM:%     GPM:%     GPM:%     GPM:%     GPM:%     GPM:% GPM:MiB/s GPM:MiB/s GPM:MiB/s GPM:MiB/s
 23:59:58      0    560     62     80          -         -         -         -         -         -         -         -         -         -         -
 23:59:59      0    571     62     81         99        91        38        61        44         0        12       100       200      3000      4000
 00:00:01      0    569     62     81         98        90        37        60        43         0        11       110       210      3100      4100
"""  # noqa: E501 - as wide as it is

CSV = """\
# gpu, pwr, gtemp, mtemp, sm, mem, enc, dec, jpg, ofa, mclk, pclk
# Idx, W, C, C, %, %, %, %, %, %, MHz, MHz
0, 97, 45, -, 7, 3, 100, 0, 0, 0, 7500, 2055
0, 98, 45, -, 8, 3, 99, 0, 0, 0, 7500, 2055
"""

HEADLESS = """\
    0    301     61     70     97     55      0      0      0      0   1593   1980 
    0    305     61     71     98     56      0      0      0      0   1593   1980 
"""  # noqa: W291 - nvidia-smi ends its lines so

STAMPED = """\
2026-03-01T10:00:00 # gpu    sm   mem   enc   dec
2026-03-01T10:00:00 # Idx     %     %     %     %
2026-03-01T10:00:01     0    90    40     0     0
2026-03-01T10:00:03     0    91    41     0     0
"""

REFUSED = """\
Not supported on the device(s)
Failed to process command line
"""

SAMPLES = (USUAL, EVERYTHING, OLD, OLDEST, GPM, CSV, HEADLESS, STAMPED, REFUSED)
