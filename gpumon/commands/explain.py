"""``gpumon explain``: a rule's own documentation, which is its docstring."""

from __future__ import annotations

import difflib
import sys

from gpumon.errors import UsageError
from gpumon.rules import RULES


def run(rule_id: str | None) -> int:
    """Print one rule's documentation, or the list of all rules.

    Raises:
        UsageError: no rule has this name; the nearest one is named.
    """
    if rule_id is None:
        width = max(len(rule.id) for rule in RULES)
        lines = [f"{rule.id:<{width}}  {rule.doc.strip().splitlines()[0]}" for rule in RULES]
    else:
        known = {rule.id: rule for rule in RULES}
        if rule_id not in known:
            close = difflib.get_close_matches(rule_id, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`gpumon explain` lists them"
            raise UsageError(f"explain: no rule is called {rule_id!r}; {hint}")
        lines = [rule_id, "", known[rule_id].doc.strip()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
