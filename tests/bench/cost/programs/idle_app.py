"""The floor of anything made with Textual: one line that never changes."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widgets import Static


class Idle(App[None]):
    """Shows one word."""

    def compose(self) -> ComposeResult:
        """The word."""
        yield Static("ready")


if __name__ == "__main__":
    Idle().run()
