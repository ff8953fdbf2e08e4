"""What runs inside the training process: this folder needs nothing of gpumon and can be copied alone.

A directory on ``PYTHONPATH`` shadows whatever its files are called like, so there are only ``sitecustomize`` (the way
in) and ``_gpumon_probe`` (the probe) here. The format that both sides share is ``_gpumon_probe.layout``.
"""
