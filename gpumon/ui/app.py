"""Which key does what; Ctrl-C and ``q`` end the program from anywhere, whatever the driver does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.actions import ActionParseResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode

from gpumon.model import Alert, Process
from gpumon.ui import selection
from gpumon.ui.board import BoardScreen
from gpumon.ui.stage import Stage
from gpumon.ui.view import alert_key, longer, next_interval, shorter


def _key(keys: str, action: str, *, is_priority: bool = False) -> Binding:
    return Binding(keys, action, show=False, priority=is_priority)


_NEEDS_FRAME = frozenset(
    {"move", "page", "end", "part", "gpu", "next_gpu", "open", "why", "mute", "copy_fix", "signal"}
)
"""Actions on something that is shown."""


class GpumonApp(Stage):
    """The program's keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("q,ctrl+c", "quit", is_priority=True),
        _key("ctrl+z", "suspend_process", is_priority=True),
        _key("ctrl+l", "redraw", is_priority=True),
        _key("question_mark,h,f1", "help"),
        _key("escape", "leave"),
        _key("a,A", "alerts"),
        _key("e", "why"),
        _key("up,k", "move(-1)"),
        _key("down,j", "move(1)"),
        _key("pageup", "page(-1)"),
        _key("pagedown", "page(1)"),
        _key("home", "move(-100000)"),
        _key("end", "end"),
        _key("tab", "part(1)"),
        _key("shift+tab", "part(-1)"),
        *(_key(str(digit), f"gpu({digit})") for digit in range(10)),
        _key("enter", "open"),
        _key("plus,equals_sign", "span(1)"),
        _key("minus", "span(-1)"),
        _key("less_than_sign", "scroll(1)"),
        _key("greater_than_sign", "scroll(-1)"),
        _key("space", "pause"),
        _key("i", "interval"),
        _key("n", "next_gpu(1)"),
        _key("p", "next_gpu(-1)"),
        _key("o", "overlay"),
        _key("m", "mute"),
        _key("y", "copy_fix"),
        _key("K,f9", "signal"),
    ]

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Do what a key means; what needs something to act on waits for the first verdict."""
        is_ready = self.frame is not None and self.frame.is_judged
        if not is_ready and isinstance(action, str) and action.partition("(")[0] in _NEEDS_FRAME:
            self.early.append(action)
            return True
        return await super().run_action(action, default_namespace, namespaces)

    # --- everywhere ---

    def action_redraw(self) -> None:
        """Ctrl-L: something else has written on the terminal."""
        self.redraw()

    def action_leave(self) -> None:
        """Esc: close the topmost of screen and scroll-back; on a bare overview nothing."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        elif self.view.scroll_blocks:
            self.change(scroll_blocks=0)

    def _toggle(self, kind: type[BoardScreen[Any]]) -> None:
        if isinstance(self.screen, kind):
            self.pop_screen()
        else:
            self.push_screen(kind())

    def action_help(self) -> None:
        """?: the page of keys; again: back."""
        from gpumon.ui.screens.help import HelpScreen

        self._toggle(HelpScreen)

    def action_alerts(self) -> None:
        """A: the log of alerts; again: back."""
        from gpumon.ui.screens.alerts import AlertsScreen

        self._toggle(AlertsScreen)

    def action_why(self) -> None:
        """E: the diagnosis behind the headline."""
        if self.frame is None or self.frame.headline.alert is None:
            self.toast("no alert to explain")
            return
        from gpumon.ui.screens.alerts import AlertsScreen

        self._set(alert=alert_key(self.frame.headline.alert))
        if not isinstance(self.screen, AlertsScreen):
            self.push_screen(AlertsScreen())
        else:
            self.draw()

    # --- moving ---

    def action_move(self, rows: int) -> None:
        """Select another row of the focused part."""
        if self.frame is not None:
            self.change(**selection.move(self.frame, self.view, self._part(), rows))

    def action_page(self, pages: int) -> None:
        """Ten rows at a time."""
        self.action_move(10 * pages)

    def action_end(self) -> None:
        """End: back to now where scrolled back, else the last row."""
        if self.view.scroll_blocks:
            self.change(scroll_blocks=0)
        else:
            self.action_move(100_000)

    def action_part(self, by: int) -> None:
        """Tab: GPUs, jobs, alerts."""
        if self.frame is not None:
            self.change(part=selection.next_part(self.frame, self.view, by))

    def action_gpu(self, index: int) -> None:
        """A digit selects that GPU."""
        if self.frame is None:
            return
        for gpu in self.frame.window.last.gpus:
            if gpu.index == index and gpu.mig_parent_uuid is None:
                self.change(part="gpus", gpu=gpu.uuid)
                return
        self.toast(f"no GPU {index}")

    def action_next_gpu(self, by: int) -> None:
        """N, p: the next GPU, on the detail screen too."""
        if self.frame is not None:
            self.change(part="gpus", **selection.move(self.frame, self.view, "gpus", by))

    def action_open(self) -> None:
        """Enter: what is behind the selected row."""
        frame = self.frame
        if frame is None:
            return
        part = self._part()
        at = selection.selected(frame, self.view, part)
        if at is None:
            return
        if part == "alerts" and not self._is_on_alerts():
            self._set(alert=selection.alerts(frame)[at])
            self.action_alerts()
            return
        from gpumon.ui.screens.job import JobScreen

        if part == "jobs" and not isinstance(self.screen, JobScreen):
            if self.view.process is None:
                self._set(process=JobScreen.first_choice(frame))
            self.push_screen(JobScreen())
            return
        uuid = selection.gpu_behind(frame, part, at)
        if uuid is None:
            self.toast("this row has no GPU to open")
            return
        self._set(gpu=uuid)
        from gpumon.ui.screens.detail import DetailScreen

        if isinstance(self.screen, DetailScreen):
            self.draw()
        else:
            self.push_screen(DetailScreen())

    def _is_on_alerts(self) -> bool:
        return isinstance(self.screen, BoardScreen) and self.screen.PART == "alerts"

    # --- time ---

    def action_span(self, by: int) -> None:
        """Longer or shorter span."""
        self.change(span_s=longer(self.view.span_s) if by > 0 else shorter(self.view.span_s), scroll_blocks=0)

    def action_scroll(self, blocks: int) -> None:
        """Back or forward by one block."""
        self.change(scroll_blocks=max(0, self.view.scroll_blocks + blocks))

    def action_pause(self) -> None:
        """Hold the picture, not the sampling; again: go on."""
        if self.view.paused_at_s is None:
            if self.frame is not None:
                self.change(paused_at_s=self.frame.window.last.time_s)
        else:
            self.frame = self._newest
            self.change(paused_at_s=None)

    def action_interval(self) -> None:
        """Next sampling interval."""
        interval_s = next_interval(self.view.interval_s)
        if self.sampler is not None:
            self.sampler.set_interval(interval_s)
        self._set(interval_s=interval_s)
        self.toast(f"interval {interval_s:g} s")

    # --- acting ---

    def action_overlay(self) -> None:
        """Detail: temperature and clock in one chart or in two."""
        self.change(is_overlaid=not self.view.is_overlaid)

    def action_mute(self) -> None:
        """Silence the selected alert's rule for its subject; asks for how long."""
        alert = self._alert_at_hand()
        if alert is None:
            self.toast("no alert to mute")
            return
        from gpumon.ui.screens.mute import MuteScreen

        self.push_screen(MuteScreen(alert, self.mutes))

    def action_copy_fix(self) -> None:
        """Copy the fix's command (else its words) where the user allowed it, else show it on a line of its own."""
        alert = self._alert_at_hand()
        if alert is None or not alert.finding.fixes:
            self.toast("no fix to copy")
            return
        fix = alert.finding.command or alert.finding.fixes[0]
        if self.config.clipboard:
            self.copy_to_clipboard(fix)
            self.toast("fix copied")
        else:
            self.toast(fix, seconds=10.0)

    def action_signal(self) -> None:
        """Signal the selected process; the dialog asks first."""
        if self.view.is_read_only:
            self.toast("read-only: no process can be signalled")
            return
        process = self._process_at_hand()
        if process is None:
            self.toast("no process here to signal")
            return
        from gpumon.ui.screens.signal import SignalScreen

        self.push_screen(SignalScreen(process))

    def _alert_at_hand(self) -> Alert | None:
        """The selected alert where alerts have the focus, else the headline's."""
        frame = self.frame
        if frame is None:
            return None
        if self._part() == "alerts":
            at = selection.selected(frame, self.view, "alerts")
            return None if at is None else frame.alerts[at]
        return frame.headline.alert

    def _process_at_hand(self) -> Process | None:
        """The selected process; where GPUs have the focus, the first one on the selected GPU."""
        frame = self.frame
        return None if frame is None else selection.process(frame, self.view, self._part())
