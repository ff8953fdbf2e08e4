from torch.optim.optimizer import Optimizer


class SGD(Optimizer):
    pass
