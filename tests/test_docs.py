"""What the documents promise is what the program does."""

from __future__ import annotations

import pytest

from gpumon.cli import run
from make_docs import BEGIN, END, ROOT, defaults, rule_table


def test_readme_lists_the_rules() -> None:
    """The README's table of rules is the one that the docstrings give (`python tests/make_docs.py`)."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.split(BEGIN)[1].split(END)[0].strip()
    assert table == rule_table()


def test_config_toml_is_the_defaults() -> None:
    """config.toml is exactly what `gpumon config` prints without a user's file."""
    assert (ROOT / "config.toml").read_text(encoding="utf-8") == defaults()


def test_ci_runs_the_readmes_test_command() -> None:
    """The last command of .ci/run is, word for word, the README's."""
    command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").strip().splitlines()[-1]
    assert f"```sh\n{command}\n```" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_shows_a_real_diagnosis(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the README prints below ``$ gpumon diagnose`` is what the program prints."""
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("$ gpumon diagnose ")[1].split("```")[0]
    file, _, wanted = shown.partition("\n")
    monkeypatch.chdir(ROOT)
    run(["diagnose", file])
    assert capsys.readouterr().out == wanted


def test_pictures_exist() -> None:
    """Every picture that the README shows is in the repository."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = [part.split(")")[0] for part in readme.split("](")[1:] if part.split(")")[0].endswith(".png")]
    assert pictures
    assert all((ROOT / picture).exists() for picture in pictures)
