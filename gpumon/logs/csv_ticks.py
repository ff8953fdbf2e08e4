"""Puts the rows of a CSV log that were taken at one moment together: one row per GPU, or one per process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpumon.logs.csv_polls import GPUS_MAX, LOOK_AHEAD, polls
from gpumon.logs.csv_table import Row, Table
from gpumon.logs.reading import Facts, Place, Reading, Use

POLL_S = 0.5
"""Rows further apart are not of one moment, even where no GPU repeats."""
USUAL_S = 1.0
"""Between two moments of a log without times."""
_PLACES = tuple(Place(index=number) for number in range(GPUS_MAX))


class Ticks:
    """Rows in, one reading per moment out."""

    def __init__(self, give: Callable[[Reading], None]) -> None:
        self._give = give
        self._table: Table | None = None
        self._gpus: dict[Place, Facts] = {}
        self._uses: dict[tuple[int, Place], Use] = {}
        self._host: dict[str, Any] = {}
        self._told: dict[str, Any] = {}
        self._first_s: float | None = None
        self._newest_s: float | None = None
        self._before_s: float | None = None
        self._dated_s: float | None = None
        self._dated_has_zone = False
        self._ahead: list[Row] = []
        self._gpus_per_poll: int | None = None
        self._next = 0

    def begin(self, table: Table) -> None:
        """What follows are this table's rows."""
        self.end()
        self._table, self._before_s = table, None
        self._gpus_per_poll = None

    def add(self, row: Row) -> None:
        """One more row of the table."""
        time_s, place, facts = row
        if place is None:
            self._add_unnamed(row)
            return
        gpus, newest_s = self._gpus, self._newest_s
        if gpus and (place in gpus or _is_another(newest_s, time_s)):
            self.flush()
            gpus = self._gpus
        if not gpus:
            self._first_s = time_s
        self._newest_s = time_s
        gpus[place] = facts

    def add_use(self, row: Row) -> None:
        """One more process. A list without times is of one moment as a whole."""
        time_s, place, facts = row
        pid = facts.get("use.pid")
        if pid is None or place is None:
            return
        if self._uses and (_is_another(self._newest_s, time_s) or (time_s is None and (pid, place) in self._uses)):
            self.flush()
        if not self._uses:
            self._first_s = time_s
        self._newest_s = time_s
        told = {"name": facts["use.name"]} if "use.name" in facts else {}
        self._uses[pid, place] = Use(pid, place, facts.get("use.memory"), facts=told)

    def tell_host(self, facts: Facts) -> None:
        """What a row says of the machine; handed over when it changes."""
        if facts != self._told:
            self._told = dict(facts)
            self._host.update(facts)

    def end(self) -> None:
        """Give what is pending."""
        if self._ahead:
            self._settle()
        self.flush()

    def tell_time(self, time_s: float | None, *, has_zone: bool) -> None:
        """A line with a date between the rows: what follows is of that moment, if its rows have no times."""
        if self._table is None or self._table.clock is None:
            self.end()
            self._gpus_per_poll = None
        self._dated_s, self._dated_has_zone = time_s, has_zone

    def flush(self) -> None:
        """The moment is over."""
        if not self._gpus and not self._uses:
            return
        first_s, gpus, uses, host = self._first_s, tuple(self._gpus.items()), tuple(self._uses.values()), self._host
        self._gpus = {}
        if uses:
            self._uses = {}
        if host:
            self._host = {}
        clock = None if self._table is None else self._table.clock
        if clock is not None and not clock.is_relative:
            self._give(Reading(first_s, gpus, uses, False, host, (), (), None, clock.has_zone))
        elif clock is not None:
            before_s, self._before_s = self._before_s, first_s
            passed_s = None if before_s is None or first_s is None or first_s <= before_s else first_s - before_s
            self._give(Reading(None, gpus, uses, host=host, interval_s=passed_s))
        elif self._dated_s is not None:
            self._give(Reading(self._dated_s, gpus, uses, host=host, has_zone=self._dated_has_zone))
        else:
            self._give(Reading(None, gpus, uses, host=host, interval_s=USUAL_S))

    def _add_unnamed(self, row: Row) -> None:
        """A row that does not say of which GPU it is: its place among those of the same moment tells."""
        if self._gpus_per_poll is None:
            self._ahead.append(row)
            if len(self._ahead) >= LOOK_AHEAD:
                self._settle()
            return
        time_s, _, facts = row
        if _is_another(self._newest_s, time_s):
            self._next = 0
        place = _PLACES[self._next]
        self._next = (self._next + 1) % self._gpus_per_poll
        self.add((time_s, place, facts))

    def _settle(self) -> None:
        rows, self._ahead = self._ahead, []
        found = polls([time_s for time_s, _, _ in rows], [facts for _, _, facts in rows])
        self._gpus_per_poll, self._next = found.gpus, found.first
        for row in rows:
            self._add_unnamed(row)


def _is_another(newest_s: float | None, time_s: float | None) -> bool:
    """Whether so much time has passed that a row is of another moment."""
    return time_s is not None and newest_s is not None and not -POLL_S < time_s - newest_s < POLL_S
