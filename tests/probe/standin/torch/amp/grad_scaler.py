class GradScaler:
    def step(self, optimizer, is_overflow=False):
        if not is_overflow:
            optimizer.step()

    def update(self):
        pass
