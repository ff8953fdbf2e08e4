import json
import sys
import time

import standin_events
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.ones(8)


accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model = torch.nn.Linear(8, 1)
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(Slow(), batch_size=2)
)
if sys.argv[1:] == ["events"]:
    standin_events.install()
steps = 0
for batch in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(batch).mean())
        time.sleep(0.01)
        optimizer.step()
        optimizer.zero_grad()
        steps += accelerator.sync_gradients
print(json.dumps({"steps": steps}))
