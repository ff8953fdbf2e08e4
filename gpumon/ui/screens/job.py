"""One job in full, on a screen of its own: which rank is looked at, and by what the ranks are sorted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from gpumon.model import Job
from gpumon.ui import selection
from gpumon.ui.board import BoardScreen
from gpumon.ui.panels.charts import Charts
from gpumon.ui.row import Row
from gpumon.ui.screens import job_ranks
from gpumon.ui.screens.job_page import Page
from gpumon.ui.screens.job_ranks import Sort
from gpumon.ui.view import Part, ViewState, process_key

if TYPE_CHECKING:
    from gpumon.monitor import Frame


class JobScreen(BoardScreen[None]):
    """The job of the selected process; drawn only while it is on top."""

    PART: ClassVar[Part | None] = "jobs"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "back"),
        ("up,k", "rank(-1)", "rank"),
        ("down,j", "rank(1)", "rank"),
        ("pageup", "rank(-10)", "rank"),
        ("pagedown", "rank(10)", "rank"),
        ("home", "rank(-100000)", "rank"),
        ("end", "end", "rank"),
        ("n", "job(1)", "job"),
        ("p", "job(-1)", "job"),
        ("full_stop", "sort(1)", "sort"),
        ("comma", "sort(-1)", "sort"),
        ("r", "reverse", "reverse"),
    ]

    def __init__(self) -> None:
        """Its charts and its order are its own: they are forgotten with it."""
        super().__init__()
        self._charts = Charts()
        self._sort = Sort()

    @staticmethod
    def first_choice(frame: Frame) -> str | None:
        """Where nobody has chosen yet: of the first job the rank that an alert is about, else the first one."""
        for job in frame.window.jobs:
            members = job_ranks.members_of(frame, job)
            if members:
                return process_key(next((one for one in members if one.alert is not None), members[0]).process)
        return None

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """The page of the selected process's job."""
        job = self._job(frame, view)
        if job is None:
            return [((" this job is over   ", ""), ("Esc", "accent"), (" back", "muted"))]
        return Page(frame, view, job, self._charts, width, sort=self._sort).rows(height)

    def _job(self, frame: Frame, view: ViewState) -> Job | None:
        process = selection.process(frame, view, "jobs")
        return next((job for job in frame.window.jobs if process is not None and process.pid in job.trainers), None)

    def _move(self, choose: Callable[[Frame, Job], str | None]) -> None:
        app = self.board_app
        job = None if app.frame is None else self._job(app.frame, app.view)
        if app.frame is not None and job is not None:
            key = choose(app.frame, job)
            if key is not None:
                app.change(process=key)

    def action_rank(self, by: int) -> None:
        """Select another rank, in the order of the table."""
        view = self.board_app.view

        def choose(frame: Frame, job: Job) -> str | None:
            members = job_ranks.in_order(job_ranks.members_of(frame, job), self._sort)
            keys = [process_key(one.process) for one in members]
            at = keys.index(view.process) if view.process in keys else 0
            return keys[min(len(keys) - 1, max(0, at + by))] if keys else None

        self._move(choose)

    def action_end(self) -> None:
        """End: back to now where scrolled back, else the last rank."""
        app = self.board_app
        if app.view.scroll_blocks:
            app.change(scroll_blocks=0)
        else:
            self.action_rank(100_000)

    def action_job(self, by: int) -> None:
        """The first rank of the next job."""

        def choose(frame: Frame, job: Job) -> str | None:
            processes = {process.pid: process for process in frame.window.last.processes}
            seen = [
                [process_key(processes[pid]) for pid in one.trainers if pid in processes] for one in frame.window.jobs
            ]
            at = frame.window.jobs.index(job) + by
            return seen[at][0] if 0 <= at < len(seen) and seen[at] else None

        self._move(choose)

    def action_sort(self, by: int) -> None:
        """Sort by the next column."""
        self._sort = self._sort.next(by)
        self.draw()

    def action_reverse(self) -> None:
        """The other way round."""
        self._sort = self._sort._replace(is_reversed=not self._sort.is_reversed)
        self.draw()

    def action_leave(self) -> None:
        """Esc: come back to now, then leave."""
        app = self.board_app
        if app.view.scroll_blocks:
            app.change(scroll_blocks=0)
        else:
            self.app.pop_screen()
