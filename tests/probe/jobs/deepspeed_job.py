"""The real engine on the CPU: ZeRO over gloo, two micro batches to a step, its own loader and workers, slow items."""

import json
import sys
import time

import deepspeed
import torch

DONE = 100


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * DONE

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(8), torch.ones(1)


deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(8, 1)
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
    training_data=Slow(),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
if sys.argv[1:] == ["counted"]:
    from gpumon.integrations.deepspeed import counted

    engine = counted(engine)
batches, waited_s, began = iter(loader), 0.0, time.perf_counter()
for number in range(DONE):
    asked = time.perf_counter()
    inputs, wanted = next(batches)
    waited_s += time.perf_counter() - asked
    engine.backward((engine(inputs) - wanted).square().mean())
    engine.step()
    time.sleep(0.008)
    if number == 1:  # both clocks begin with the end of the first step
        waited_s, began = 0.0, time.perf_counter()
share = waited_s / (time.perf_counter() - began)
if engine.global_rank == 0:
    print(json.dumps({"steps": engine.global_steps, "share": share}))
torch.distributed.destroy_process_group()
