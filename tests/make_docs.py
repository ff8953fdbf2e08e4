"""Writes what is derived from the code: config.toml and the README's table of rules. Run it after changing a rule."""

from __future__ import annotations

from pathlib import Path

from gpumon import config
from gpumon.rules import RULES

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"


def rule_table() -> str:
    """The README's table of rules, from the first lines of their docstrings."""
    rows = [f"| `{rule.id}` | {rule.doc.strip().splitlines()[0]} |" for rule in RULES]
    return "\n".join(["| rule | says |", "|---|---|", *rows])


def defaults() -> str:
    """config.toml: every key with its explanation and its default."""
    return config.render(config.Config(), {rule.id: rule.limits for rule in RULES})


def main() -> None:
    """Rewrite both files."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n{rule_table()}\n{END}{after}", encoding="utf-8")
    (ROOT / "config.toml").write_text(defaults(), encoding="utf-8")


if __name__ == "__main__":
    main()
