"""A question at the foot of the screen: what is below goes on living, and nothing but the answer takes keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from gpumon.ui.board import BoardScreen
from gpumon.ui.palette import muted
from gpumon.ui.panels.line import fill
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens.chrome import footer_row, rule_row
from gpumon.ui.view import ViewState

if TYPE_CHECKING:
    from gpumon.monitor import Frame


class Dialog(BoardScreen[None]):
    """Rows over the lower part of the screen beneath, with choices; the first one is the default."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "cancel", "cancel"),
        ("left,up,shift+tab,h,k", "choose(-1)", "previous"),
        ("right,down,tab,l,j", "choose(1)", "next"),
        ("enter", "answer", "do it"),
    ]
    title_text: ClassVar[str] = ""

    def __init__(self, choices: Sequence[str]) -> None:
        """Nothing is done before Enter."""
        super().__init__()
        self.choices = tuple(choices)
        self.chosen = 0

    @property
    def is_modal(self) -> bool:
        """The program's other keys wait until the question is answered."""
        return True

    def body(self, frame: Frame, width: int) -> list[Row]:
        """What the question is about."""
        raise NotImplementedError

    def answered(self, choice: str) -> None:
        """Do what was chosen; the dialog is closed already."""
        raise NotImplementedError

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """The screen beneath in grey, the question over its lower part."""
        question = [rule_row([(self.title_text, "bold")], width), *self.body(frame, width), self.choice_row(width)]
        keys = (("←→", "choose"), ("Enter", "do it"), ("Esc", "cancel"))
        question.append(footer_row(frame, view, keys, width))
        beneath = self.app.screen_stack[-2]
        above = list(beneath.rows(frame, view, width, height)) if isinstance(beneath, BoardScreen) else []
        room = max(0, height - len(question))
        kept = [tuple((text, muted(style)) for text, style in row) for row in above[3:room]]
        shown = [*above[: min(3, room)], *kept]
        return [*shown, *[()] * (room - len(shown)), *(fill(row, width) for row in question[-height:])]

    def choice_row(self, width: int) -> Row:
        """The choices side by side, the chosen one reversed and marked."""
        pieces: list[Piece] = [(" ", "")]
        for number, choice in enumerate(self.choices):
            is_chosen = number == self.chosen
            pieces.append((f"›{choice} " if is_chosen else f" {choice} ", "bold reverse" if is_chosen else ""))
            pieces.append(("  ", ""))
        return fill(pieces, width)

    def action_choose(self, by: int) -> None:
        """Another choice."""
        self.chosen = min(len(self.choices) - 1, max(0, self.chosen + by))
        self.draw()

    def action_cancel(self) -> None:
        """Nothing happens."""
        self.app.pop_screen()

    def action_answer(self) -> None:
        """Enter: close, then do it."""
        choice = self.choices[self.chosen]
        self.app.pop_screen()
        self.answered(choice)
