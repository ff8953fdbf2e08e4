"""What runs inside the training process: this folder needs nothing of gpumon and can be copied alone.

A directory on ``PYTHONPATH`` shadows whatever its files are called like, so there are only ``sitecustomize`` (the way
in) and ``_gpumon_probe`` (the probe) here. The format that both sides share is ``_gpumon_probe.layout``.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

FOLDER = os.path.dirname(os.path.abspath(__file__))


def load() -> ModuleType:
    """The probe of this process, ``_gpumon_probe.api``: the same one, whoever switches it on."""
    import importlib
    import importlib.util

    name = "_gpumon_probe"
    if name not in sys.modules:
        folder = os.path.join(FOLDER, name)
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} is not there")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{name}.api")
