"""A stand-in for torch: the few places that the probe hooks into, with their real names and shapes, and no tensors."""

__version__ = "2.0+standin"
_gradients = [True]


def is_grad_enabled():
    return _gradients[0]


class no_grad:
    def __enter__(self):
        self.before, _gradients[0] = _gradients[0], False

    def __exit__(self, *_):
        _gradients[0] = self.before


from torch.serialization import save
import torch.nn.parallel
from torch import amp, compiler, cuda, nn, optim, utils
