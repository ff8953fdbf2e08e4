"""A plain loop on real torch, in the variants of its data loader; prints its own clock's share of waiting."""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

asked = argparse.ArgumentParser()
asked.add_argument("--workers", type=int, default=0)
asked.add_argument("--persistent", action="store_true")
asked.add_argument("--iterable", action="store_true")
asked.add_argument("--load-ms", type=float, default=0.0)
asked.add_argument("--work-ms", type=float, default=10.0)
asked.add_argument("--epochs", type=int, default=3)
asked.add_argument("--amp", action="store_true")
asked.add_argument("--compile", action="store_true")
asked.add_argument("--validate", choices=("inside", "outside"))
asked.add_argument("--save", action="store_true")
options = asked.parse_args()
BATCHES, SIZE = 30, 4


class Numbers(Dataset):
    def __len__(self):
        return BATCHES * SIZE

    def __getitem__(self, index):
        time.sleep(options.load_ms / 1000 / SIZE)
        return torch.full((16,), float(index % 7)), torch.tensor([1.0])


class Stream(IterableDataset):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        count = BATCHES * SIZE // (info.num_workers if info else 1)
        data = Numbers()
        return (data[index] for index in range(count))


loader = DataLoader(
    Stream() if options.iterable else Numbers(),
    batch_size=SIZE,
    num_workers=options.workers,
    persistent_workers=options.persistent,
)
held_out = DataLoader(Numbers(), batch_size=SIZE)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=options.amp)
forward = torch.compile(model) if options.compile else model
waits, first, last, done, paused = [], None, None, 0, 0.0


def busy(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def validate():
    if options.validate == "inside":
        with torch.no_grad():
            for inputs, _ in held_out:
                model(inputs)
    elif options.validate == "outside":
        for inputs, _ in held_out:
            with torch.no_grad():
                model(inputs)


for _ in range(options.epochs):
    batches = iter(loader)
    while True:
        asked_at = time.perf_counter()
        try:
            inputs, wanted = next(batches)
        except StopIteration:
            waits.append(time.perf_counter() - asked_at)
            break
        waits.append(time.perf_counter() - asked_at)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.amp):
            loss = (forward(inputs) - wanted).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        busy(options.work_ms / 1000)
        scaler.step(optimizer)
        scaler.update()
        last = time.perf_counter()
        done += 1
        if first is None:
            first = last
            waits.clear()  # both clocks begin with the end of the first step
        waited = sum(waits)
    pause_at = time.perf_counter()
    validate()
    if options.save:
        torch.save(model.state_dict(), "model.pt")
    paused_before, paused = paused, paused + time.perf_counter() - pause_at
print(json.dumps({"steps": done, "share": waited / (last - first - paused_before)}))
