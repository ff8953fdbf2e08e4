"""Strings from outside: nothing reaches the terminal raw, secrets stay secret, ordinary commands stay readable."""

from __future__ import annotations

import pytest

from gpumon.text import clean, redact_command


@pytest.mark.parametrize(
    "hostile",
    [
        "py\x1b]52;c;ZWNo\x07",
        "\x1b]0;PWN\x07",
        "\x1b[31;5m",
        "\x9b2J",
        "\x9d0;x",
        "a\u202eb",
        "\x7f",
        "a\u200bb",
        "py\udc9b",
        "\u2028",
        "\ufeff",
        "a\ufe0f",
        "\U000e0041",
        b"\x1b[2J\xff\x9b",
    ],
)
def test_no_control_survives(hostile: str | bytes) -> None:
    """Escape sequences, C1 controls, bidi overrides, zero-width characters and surrogates are all replaced."""
    shown = clean(hostile)
    assert all(ord(c) >= 32 and not 0x7F <= ord(c) < 0xA0 and not 0xD800 <= ord(c) < 0xE000 for c in shown)
    assert not set(shown) & set("\u202e\u200b\u2028\ufeff\ufe0f\U000e0041")
    shown.encode()


def test_ordinary_names_are_left_alone() -> None:
    """Letters of any script pass unchanged."""
    assert clean("训练 train_модель.py é") == "训练 train_модель.py é"


def test_long_and_stacked_text_is_capped() -> None:
    """Length is capped, and a tower of combining marks keeps two."""
    assert len(clean("x" * 100_000)) == 256
    assert clean("q" + "\u0323" * 40) == "q\u0323\u0323"


@pytest.mark.parametrize(
    ("argv", "secret"),
    [
        (["python", "train.py", "--api-key", "abc123"], "abc123"),
        (["python", "train.py", "--api_key=abc123"], "abc123"),
        (["env", "WANDB_API_KEY=abc123", "python"], "abc123"),
        (["x", "--hf-token", "abc123"], "abc123"),
        (["x", "--token=abc123"], "abc123"),
        (["x", "password=abc123"], "abc123"),
        (["x", "--db", "postgres://me:abc123@host/db"], "abc123"),
        (["x", "https://hooks.slack.com/services/T0/B0/abc123"], "abc123"),
        (["x", "hf_abcdefghijklmnopqrst"], "hf_abcdefghijklmnopqrst"),
        (["x", "AKIAABCDEFGHIJKLMNOP"], "AKIAABCDEFGHIJKLMNOP"),
        (["x", "ghp_abcdefghijklmnopqrstuvwxyz"], "ghp_abc"),
        (["x", "0123456789abcdef0123456789abcdef01234567"], "0123456789abcdef"),
    ],
)
def test_secrets_are_redacted(argv: list[str], secret: str) -> None:
    """The value of every known shape of secret is replaced by stars."""
    shown = redact_command(argv)
    assert secret not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "command",
    [
        "train.py --tokenizer gpt2",
        "train.py --max-tokens=4096",
        "train.py model.token_embed=8",
        "train.py --pad-token-id 0",
        "train.py --author me",
        "train.py --keyframe 3 --monkey 1",
        "torchrun --nproc-per-node 8 train.py --lr 1e-4",
    ],
)
def test_benign_arguments_are_readable(command: str) -> None:
    """Arguments that only look like secrets are shown as they are."""
    assert redact_command(command.split()) == command


def test_an_adversarial_command_line_is_cheap() -> None:
    """The total length is capped whatever the number and size of arguments."""
    assert len(redact_command(["x" * 1_000_000] * 240)) < 5000


def test_what_has_no_picture_is_replaced_and_every_space_is_one() -> None:
    """Unassigned and private characters have no width that a terminal agrees on; pages paste unbreakable spaces."""
    assert clean("a\u00a0b\u2002c\u3000d\u0a00e\ue0b0f") == "a b c d·e·f"
