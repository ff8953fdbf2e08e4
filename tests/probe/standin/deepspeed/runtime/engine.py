"""As the engine of DeepSpeed 0.19 counts: a step at the end of an accumulation, skipped ones too, many inner steps."""


class DeepSpeedEngine:
    def __init__(self, optimizers, accumulation):
        self.optimizers, self.accumulation = optimizers, accumulation
        self.micro_steps = self.global_steps = 0
        self.is_overflow = False

    def forward(self, batch):
        return batch

    def train_micro_batch_size_per_gpu(self):
        return 4

    def gradient_accumulation_steps(self):
        return self.accumulation

    def was_step_applied(self):
        return not self.is_overflow

    def step(self):
        self.micro_steps += 1
        if self.micro_steps % self.accumulation == 0:
            if not self.is_overflow:
                for optimizer in self.optimizers:
                    optimizer.step()
            self.global_steps += 1

    def save_checkpoint(self, directory):
        pass
