from torch.cuda import copy


def send_to_device(batch, device, non_blocking=False):
    copy(batch, is_blocking=not non_blocking)
    return batch


class DataLoaderShard:
    def __init__(self, batches, device="cuda"):
        self.batches, self.device = batches, device

    def __iter__(self):
        for batch in self.batches:
            yield send_to_device(batch, self.device)
