"""What strings from outside may contain: terminal controls and secrets are taken out here, once, where they enter."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence

_REPLACEMENT = "·"

_UNPRINTABLE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1 (U+009B is CSI on some terminals)
    "\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"  # zero width, line separators, bidi overrides and isolates
    "\ufe00-\ufe0f"  # variation selectors change a cell's width
    "\ud800-\udfff"  # surrogates: what `surrogateescape` leaves; no encoder takes them
    "\U000e0000-\U000e0fff"  # tags and further variation selectors
    "]"
)
_MARK_RUN = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3,}")

MAX_CHARACTERS = 256
MAX_ARGUMENTS = 256
MAX_COMMAND_BYTES = 4096


def clean(outside: str | bytes, limit: int = MAX_CHARACTERS) -> str:
    """Make a string from outside the program safe to show, store and send.

    Bytes are decoded as UTF-8 with replacement. Terminal controls, bidi overrides, zero-width characters and
    surrogates become ``·``, as does what has no picture at all; other kinds of space become one; at most two combining
    marks follow each other; the length is capped at ``limit``.
    """
    if isinstance(outside, bytes):
        outside = outside[: 4 * limit].decode("utf-8", "replace")
    shown = outside[:limit]
    if shown.isascii() and shown.isprintable():
        return shown
    shown = unicodedata.normalize("NFC", _UNPRINTABLE.sub(_REPLACEMENT, shown))
    if not shown.isprintable():
        shown = "".join(one if one.isprintable() else " " if one.isspace() else _REPLACEMENT for one in shown)
    return _MARK_RUN.sub(lambda run: run.group()[:2], shown)


_REDACTED = "***"
_SECRET_WORDS = frozenset(
    "secret secrets password passwd pwd passphrase credential credentials webhook dsn apikey auth".split()
)
_SECRET_PAIRS = (("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "token"))
_BENIGN_TOKEN_WORDS = frozenset("max min num n pad eos bos unk sep cls mask special new id ids count embed len".split())
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]{0,20}://)[^/\s@]{1,256}@")
_HOOK = re.compile(
    r"(https?://(?:hooks\.slack\.com/services|(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks|ntfy\.sh)/)\S{1,256}"
)
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|xox[abprs]-[A-Za-z0-9\-]{10,}|AKIA[A-Z0-9]{16}|AIza[A-Za-z0-9_\-]{30,}|glpat-[A-Za-z0-9_\-]{16,}"
    r"|eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]*|[0-9a-f]{40})\b"
)
_KEY = re.compile(r"-{0,2}([A-Za-z_][\w.\-]{0,80})")


def _is_secret_key(key: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(key)]
    if not _SECRET_WORDS.isdisjoint(words):
        return True
    if any((first, second) in _SECRET_PAIRS for first, second in itertools.pairwise(words)):
        return True
    return "token" in words and _BENIGN_TOKEN_WORDS.isdisjoint(words)


def _redact_shapes(argument: str) -> str:
    argument = _USER_INFO.sub(rf"\1{_REDACTED}@", argument)
    argument = _HOOK.sub(rf"\1{_REDACTED}", argument)
    return _SHAPES.sub(_REDACTED, argument)


def redact_command(argv: Sequence[str | bytes]) -> str:
    """Join a command line for people: cleaned, capped, and with values of secrets replaced by ``***``.

    ``--api-key X``, ``TOKEN=X``, URL user information, webhook addresses and well-known token shapes are caught;
    ``--tokenizer gpt2``, ``--max-tokens=4096`` and the like are left alone.
    """
    shown: list[str] = []
    budget = MAX_COMMAND_BYTES
    is_value_secret = False
    for raw in argv[:MAX_ARGUMENTS]:
        argument = clean(raw, min(budget, MAX_COMMAND_BYTES))
        budget -= len(argument) + 1
        key, equals, _ = argument.partition("=")
        match = _KEY.fullmatch(key)
        is_key_secret = match is not None and _is_secret_key(match.group(1))
        if is_value_secret and not argument.startswith("--"):
            shown.append(_REDACTED)
        elif equals and is_key_secret:
            shown.append(f"{key}={_REDACTED}")
        else:
            shown.append(_redact_shapes(argument))
        is_value_secret = is_key_secret and not equals and argument.startswith("-")
        if budget <= 0:
            break
    return " ".join(shown)
