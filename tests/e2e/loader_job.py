"""Real torch on the CPU: `loader_job.py LOAD_MS WORK_MS SECONDS`, a slow ``__getitem__`` or one that is not."""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
load_s, work_s, lasts_s = float(sys.argv[1]) / 1000, float(sys.argv[2]) / 1000, float(sys.argv[3])


class Rows(Dataset):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, _index: int) -> torch.Tensor:
        time.sleep(load_s)
        return torch.ones(8)


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.monotonic() + lasts_s
for batch in DataLoader(Rows(), batch_size=1):
    model(batch).mean().backward()
    time.sleep(work_s)
    optimizer.step()
    optimizer.zero_grad()
    if time.monotonic() > until:
        break
