"""Reads Prometheus text of GPU exporters: one scrape is a reading, several in a row are a series."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from gpumon.logs.dcgm_names import Meaning
from gpumon.logs.prometheus_names import is_of_gpus, meaning_of
from gpumon.logs.prometheus_scrape import Key, Scrape, Xid, key_of
from gpumon.logs.prometheus_series import Sample, Series, epoch_of, sample_of, series_of
from gpumon.logs.reading import Facts, Place, Reading
from gpumon.logs.values import moment

INTERVAL_S = 15.0
"""Assumed between two scrapes that say no times: how often Prometheus is mostly told to ask."""
LAST_SEEN = "is_last_seen"
"""Name of an event's value: a gauge keeps this number for ever, when it happened is not known."""

_FELL_OFF = 79
_MOST_BYTES_PER_S = 4e12
_SAME_S = 0.5
_SAMPLES_MAX = 1_000_000
_SERIES_MAX, _LABELS_MAX = 10_000, 2048
_REMEMBERED_MAX = 100_000


class PrometheusReader:
    """Samples are of one scrape until a series repeats or the time in the lines changes.

    A dump that lists each series with all its times is put into the order of time at its end.
    """

    kind: ClassVar[str] = "prometheus-text"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._known: dict[str, tuple[Series, dict[str, Meaning | None]]] = {}
        self._scrape = Scrape()
        self._seen: set[int] = set()
        self._key: int | None = None
        self._by_time: dict[int, Scrape] | None = None
        self._count = 0
        self._said_s: float | None = None
        self._is_ratio_percent = False
        self._last_xids: dict[tuple[Key | None, str, int], float] = {}
        self._last_codes: dict[Key | None, int] = {}
        self._gpus: dict[Key, Place] = {}
        self._counters: dict[tuple[Key, str], tuple[float, float]] = {}
        self._host: str | None = None
        self._others: set[str] = set()

    def starts(self, line: str) -> bool:
        """A sample of a GPU's metric, or the help or type of one."""
        if line.startswith("#"):
            words = line.split(None, 3)
            return len(words) > 2 and words[1] in {"HELP", "TYPE"} and is_of_gpus(words[2])
        sample = sample_of(line) if "_" in line[:256] else None
        if sample is not None and is_of_gpus(sample.name):
            return True
        text = line.strip()
        self._said_s = moment(text) if 12 <= len(text) <= 40 else None
        return False

    def take(self, line: str) -> bool:
        """Read a sample; comments and other exporters' metrics belong to the text as well."""
        if line.startswith("#"):
            if line.startswith("# EOF"):
                self._flush()
            return line.startswith(("# HELP ", "# TYPE ", "# UNIT ", "# EOF"))
        if not line.strip():
            return True
        sample = sample_of(line)
        if sample is None:
            if not is_of_gpus(line.lstrip().partition("{")[0].partition(" ")[0]):
                return False
            self._leave_out("a damaged line of Prometheus text")
            return True
        series, meaning = self._meaning(sample)
        if meaning is None:
            return True
        if self._is_elsewhere(series):
            return True
        scrape = self._scrape_of(sample)
        if scrape is not None:
            if meaning.field.startswith("ratio.") and sample.value is not None:
                self._is_ratio_percent = self._is_ratio_percent or _is_above_one(sample.value)
            scrape.add(meaning, series, sample.value)
        return True

    def end(self) -> None:
        """Give what is pending."""
        if self._by_time is not None:
            scrapes, self._by_time, self._count = self._by_time, None, 0
            for _, self._scrape in sorted(scrapes.items()):
                self._flush()
        self._flush()

    def _meaning(self, sample: Sample) -> tuple[Series, Meaning | None]:
        known = self._known.get(sample.labels)
        if known is None:
            if len(self._known) >= _SERIES_MAX:
                self._known.clear()
            known = (series_of(sample.labels), {})
            if len(sample.labels) <= _LABELS_MAX:
                self._known[sample.labels] = known
        series, meanings = known
        if sample.name not in meanings:
            meanings[sample.name] = meaning_of(sample.name, series.labels)
        return series, meanings[sample.name]

    def _is_elsewhere(self, series: Series) -> bool:
        """A series of another machine that has no more than an index to tell its GPUs by."""
        host = series.host
        if host is None:
            return False
        if self._host is None:
            self._host = host
        if host == self._host or (series.place is not None and series.place.uuid is not None):
            return False
        if host not in self._others and len(self._others) < 100:
            self._others.add(host)
            self._leave_out(f"a series of another machine than {self._host}: {host}")
        return True

    # --- which scrape ----------------------------------------------------------------------------

    def _scrape_of(self, sample: Sample) -> Scrape | None:
        key = hash((sample.name, sample.labels))
        time_s, now = sample.time_s, self._scrape
        if self._by_time is not None and time_s is not None:
            return self._sorted(time_s)
        is_other = time_s is not None and now.time_s is not None and abs(time_s - now.time_s) > _SAME_S
        if is_other and key == self._key and time_s is not None and now.time_s is not None:
            # The next time of the same series: the dump lists series by series.
            self._by_time = {round(now.time_s): now}
            self._scrape, self._seen = Scrape(), set()
            return self._sorted(time_s)
        if is_other or key in self._seen or len(self._seen) >= _REMEMBERED_MAX:
            self._flush()
        if self._scrape.time_s is None:
            self._scrape.time_s = time_s
        self._seen.add(key)
        self._key = key
        return self._scrape

    def _sorted(self, time_s: float) -> Scrape | None:
        assert self._by_time is not None
        self._count += 1
        if self._count > _SAMPLES_MAX:
            if self._count == _SAMPLES_MAX + 1:
                self._leave_out(f"more than {_SAMPLES_MAX} samples in the order of their series; the rest is not read")
            return None
        return self._by_time.setdefault(round(time_s), Scrape(time_s))

    def _flush(self) -> None:
        scrape, self._scrape, self._seen, self._key = self._scrape, Scrape(), set(), None
        if scrape.is_empty():
            return
        if scrape.time_s is None:
            scrape.time_s, self._said_s = scrape.said_s if scrape.said_s is not None else self._said_s, None
        gpus = list(scrape.gpus(is_ratio_percent=self._is_ratio_percent))
        for place, facts in gpus:
            self._add_growth(scrape, key_of(place), facts)
        events = list(self._events(scrape))
        gpus += [(place, {"is_lost": True}) for key, place in self._gpus.items() if self._is_lost(key, scrape)]
        for memory in (self._gpus, self._counters, self._last_codes, self._last_xids):
            if len(memory) > _REMEMBERED_MAX:
                memory.clear()
        self._gpus.update(scrape.places)
        uses = tuple(scrape.uses())
        host = dict(scrape.host)
        if self._host is not None and not self._others:
            host["name"] = self._host
        self._give(
            Reading(
                time_s=scrape.time_s,
                gpus=gpus,
                uses=uses,
                host=host,
                events=events,
                interval_s=INTERVAL_S,
                has_zone=scrape.time_s is not None,
            )
        )

    def _is_lost(self, key: Key, scrape: Scrape) -> bool:
        """A GPU of which, since its fault, the number of the fault alone is left."""
        return key not in scrape.places and self._last_codes.get(key) == _FELL_OFF

    # --- what needs the scrape before ---------------------------------------------------------------

    def _add_growth(self, scrape: Scrape, key: Key, facts: dict[str, Any]) -> None:
        for (where, field), value in scrape.counters.items():
            if where != key or scrape.time_s is None:
                continue
            before = self._counters.get((key, field))
            self._counters[key, field] = (scrape.time_s, value)
            if before is None or scrape.time_s <= before[0] or value < before[1]:
                continue
            rate = (value - before[1]) / (scrape.time_s - before[0])
            kind, _, name = field.partition(".")
            if kind == "rate" and rate <= _MOST_BYTES_PER_S:
                facts.setdefault(name, rate)
            elif kind == "share":
                facts.setdefault("throttled_pct", {})[name] = min(100.0, 100.0 * rate)

    def _events(self, scrape: Scrape) -> Iterator[tuple[Place | None, Facts]]:
        times = {(one.place, one.code): one.value for one in scrape.xids if one.how == "time"}
        for one in scrape.xids:
            if one.how == "last":
                yield from self._last_xid(one)
            elif one.how in {"window", "total"}:
                yield from self._counted_xid(one, times.get((one.place, one.code)), scrape.time_s)

    def _last_xid(self, one: Xid) -> Iterator[tuple[Place | None, Facts]]:
        key = None if one.place is None else key_of(one.place)
        before = self._last_codes.get(key)
        if before is None and key in self._gpus:
            before = 0  # exporters begin the series with the first fault
        self._last_codes[key] = one.code
        if not one.code or one.code == before:
            return
        words = f" ({one.text})" if one.text else ""
        if before is None:
            text = f"last Xid recorded by the exporter: {one.code}{words}; when it happened is not known"
            yield one.place, {"kind": "xid", "xid": one.code, "text": text, "values": {LAST_SEEN: 1.0}}
        else:
            yield (
                one.place,
                {"kind": "xid", "xid": one.code, "text": f"the exporter's last Xid became {one.code}{words}"},
            )

    def _counted_xid(self, one: Xid, at_s: float | None, now_s: float | None) -> Iterator[tuple[Place | None, Facts]]:
        gpu = None if one.place is None else key_of(one.place)
        before = self._last_xids.get((gpu, one.how, one.code))
        self._last_xids[gpu, one.how, one.code] = one.value
        if before is None and gpu in self._gpus:
            before = 0.0
        count = one.value - (before or 0.0)
        if count < 1.0:
            return
        values = {"count": count}
        facts: dict[str, Any] = {"kind": "xid", "xid": one.code, "values": values}
        is_new = before is not None or one.how == "window"
        if at_s is not None and now_s is not None and epoch_of(at_s) is not None and at_s <= now_s:
            facts["time_s"] = at_s
        elif not is_new:
            values[LAST_SEEN] = 1.0
        age = "" if is_new or "time_s" in facts else "; when is not known"
        facts["text"] = f"Xid {one.code} counted {count:.0f} × by the exporter{age}"
        yield one.place, facts


def _is_above_one(text: str) -> bool:
    try:
        return 1.0 < float(text) <= 100.0
    except ValueError:
        return False
