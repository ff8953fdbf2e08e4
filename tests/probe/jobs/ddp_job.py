import json
import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 60

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.ones(8)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0


def slow_rank(module, inputs):
    time.sleep(0.02 if rank == 1 else 0.0)


model.module.register_forward_pre_hook(slow_rank)
for batch in DataLoader(Slow(), batch_size=2):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
print(json.dumps({"steps": steps, "rank": rank, "pid": os.getpid()}))
# Under load a process that leaves with gloo's group still held by the model is aborted now and then, probe or not.
dist.barrier()
del model, optimizer
dist.destroy_process_group()
