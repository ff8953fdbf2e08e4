"""Every fault that can be injected, by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.bench.plan import Draw, Plan

Make = Callable[[Draw], Plan]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of trouble and what a right answer to it is."""

    name: str
    rules: tuple[str, ...]
    """Right headlines; the first is the rule whose recall is counted."""
    make: Make
    causes: tuple[str, ...] = ()
    """Right causes of that finding, where the cause matters."""
    also: tuple[str, ...] = ()
    """What may be found as well: consequences."""
    is_info: bool = False
    """The rule informs and takes no headline."""
    budget_s: float | None = None
    """Time to detect that was promised."""
    weight: float = 1.0


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    *rules: str,
    causes: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    is_info: bool = False,
    budget_s: float | None = None,
    weight: float = 1.0,
) -> Callable[[Make], Make]:
    """Register a way to make runs with a fault."""

    def register(make: Make) -> Make:
        FAULTS[name] = Fault(
            name=name,
            rules=rules,
            make=make,
            causes=causes,
            also=also,
            is_info=is_info,
            budget_s=budget_s,
            weight=weight,
        )
        return make

    return register


from tests.bench import faults_card, faults_input, faults_job, faults_machine  # noqa: E402, F401 - they register
