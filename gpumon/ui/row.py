"""What a panel returns: rows of styled pieces that cover the width exactly.

A style is ``[bold ][reverse ]ROLE[ on ROLE]`` with the roles of ``palette.py``; the empty string is the
terminal's own foreground. Strings, because rows are compared each second and equal strings compare fast.
"""

from __future__ import annotations

Piece = tuple[str, str]
"""(text, style); the text is made of single-width characters unless it came from outside."""

Row = tuple[Piece, ...]
