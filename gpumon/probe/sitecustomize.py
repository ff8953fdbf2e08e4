"""The way in: Python imports this at its start where this folder is on PYTHONPATH. Any Python may, so it parses in all.

It watches for frameworks and then runs the ``sitecustomize`` that would have run without it.
"""

import sys


def _watch():
    if sys.version_info >= (3, 8):
        from _gpumon_probe import finder

        finder.install()


def _chain():
    """Run the user's own, under its own name and on the path that would be without this folder."""
    import os

    folder = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != folder]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        error = sys.exc_info()[1]
        if getattr(error, "name", None) != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = ours


try:
    _watch()
except Exception:
    pass
_chain()
