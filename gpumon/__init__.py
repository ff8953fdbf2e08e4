"""gpumon: is the training run healthy, what is wrong, why, and what to do."""

__version__ = "0.1.0"
