"""Which parts are taken for one run by their looks."""

from __future__ import annotations

from gpumon.likeness import Likeness, Looks

GIB = 1 << 30


def looks(number: int, kind: str = "H100", memory_gib: float | None = 60.0) -> Looks:
    uuid = f"GPU-{number}"
    return Looks(uuid, uuid, kind, None if memory_gib is None else int(memory_gib * GIB))


def test_what_begins_together_and_holds_as_much_is_one_run() -> None:
    """Rank 0 holds a little more; what comes later, on another card or with other memory, is another's."""
    likeness = Likeness()
    first = likeness.key(looks(0, memory_gib=66.0), 100.0)
    assert likeness.key(looks(1), 101.0) == first
    assert likeness.key(looks(2), 130.0) == first
    assert likeness.key(looks(3, memory_gib=20.0), 130.0) != first
    assert likeness.key(looks(4, kind="A100"), 130.0) != first
    assert likeness.key(looks(5), 500.0) != first


def test_two_parts_on_one_gpu_are_two_runs() -> None:
    """Two processes of the same size on one card have nothing to do with each other."""
    likeness = Likeness()
    mine = Looks(10, "GPU-0", "python", GIB)
    assert likeness.key(mine, 0.0) != likeness.key(mine._replace(part=11), 0.0)


def test_who_belongs_stays() -> None:
    """Memory that grows later parts nobody; what is gone for half a minute begins anew."""
    likeness = Likeness()
    first = likeness.key(looks(0), 0.0)
    assert likeness.key(looks(0, memory_gib=10.0), 20.0) == first
    assert likeness.key(looks(1), 20.0) == first
    likeness.forget(45.0)
    assert likeness.key(looks(1), 45.0) == first
    likeness.forget(200.0)
    assert likeness.key(looks(1, memory_gib=1.0), 200.0) != first


def test_unknown_memory_is_alike_only_to_unknown_memory() -> None:
    """A log without memory still groups by time and card."""
    likeness = Likeness()
    first = likeness.key(looks(0, memory_gib=None), 0.0)
    assert likeness.key(looks(1, memory_gib=None), 0.0) == first
    assert likeness.key(looks(2), 0.0) != first
