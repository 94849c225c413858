"""Emails as a reader sees them, and which of them belong together.

Guarantee: pure; of the header only the subject is kept, because the rest tells lists, servers and dates,
so a classifier would learn where the mail was collected; markup, comments, scripts and styles are gone;
nothing is longer than the limit.
"""

from __future__ import annotations

import email
import email.header
import email.message
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

LIMIT = 600
"""Characters of a mail, subject line included."""

SHINGLE, SIGNATURE = 5, 8
"""Words of a shingle, and how many of a text's smallest shingle hashes stand for it."""

_UNSEEN = re.compile(r"(?is)<!--.*?-->|<(style|script|title)\b.*?</\1\s*>|<!doctype[^>]*>")
_TAG = re.compile(r"(?s)<[a-zA-Z/!][^>]*>")
_LOOSE_END = re.compile(r"(?s)<(?:[a-zA-Z/]|!--)[^>]*$")
_REPLY = re.compile(r"^(?:\s*(?:re|fwd?|aw)\s*(?:\[\d+\])?:|\s*\[[^\]]{1,30}\])+", re.IGNORECASE)
_TEXTS = ("text/plain", "text/html")


def text_of_mail(raw: str, limit: int = LIMIT) -> str:
    """`Subject: ...`, a line break, and the body in one line, cut at `limit` characters.

    Args:
        raw: header and body as they were sent, in Latin-1.
    """
    message = email.message_from_string(raw)
    subject = _line(_decoded(str(message.get("Subject", ""))))
    return f"Subject: {subject}\n{_line(_body(message))}"[:limit].rstrip()


def _decoded(subject: str) -> str:
    """A subject without its transfer encoding; as it is when that is broken."""
    try:
        return str(email.header.make_header(email.header.decode_header(subject)))
    except (ValueError, LookupError):
        return subject


def _body(message: email.message.Message) -> str:
    """The first part with text in it that is meant for a reader: plain text before HTML."""
    parts = [part for part in message.walk() if part.get_content_type() in _TEXTS]
    parts.sort(key=lambda part: _TEXTS.index(part.get_content_type()))
    bodies = (seen(_payload(part)) for part in parts)
    return next((body for body in bodies if body.strip()), "")


def _payload(part: email.message.Message) -> str:
    try:
        data = part.get_payload(decode=True)
    except (ValueError, LookupError):
        return str(part.get_payload())
    return data.decode("latin-1") if isinstance(data, bytes) else ""


def seen(markup: str) -> str:
    """What of a plain or HTML text a reader sees."""
    return html.unescape(_LOOSE_END.sub(" ", _TAG.sub(" ", _UNSEEN.sub(" ", markup))))


def _line(text: str) -> str:
    """One line without control characters or surrogates."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"\s+", " ", printable).strip()


def thread(text: str) -> str:
    """The subject as all mails of a thread share it: no replies, list tags, case, digits or marks."""
    subject = text.partition("\n")[0].removeprefix("Subject:")
    return re.sub(r"[\W\d_]+", " ", _REPLY.sub("", subject).lower()).strip()


def shingles(text: str) -> frozenset[int]:
    """The `SIGNATURE` smallest hashes of five words in a row; of digits only that they are there."""
    words = re.findall(r"[^\W\d_]+|\d+", text.partition("\n")[2].lower())
    words = ["0" if word.isdigit() else word for word in words]
    runs = (" ".join(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1))
    return frozenset(sorted({_hash(run) for run in runs})[:SIGNATURE])


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def related(texts: Sequence[str]) -> list[int]:
    """A group number for each mail: one for all that share a thread or half of their signature.

    Relatives of relatives are relatives, so a group can be wide; it is never too narrow by chance of order.
    """
    parent = list(range(len(texts)))
    for key in (thread, _bands):
        holders: dict[object, list[int]] = {}
        for at, text in enumerate(texts):
            for mark in _marks(key(text)):
                holders.setdefault(mark, []).append(at)
        for members in holders.values():
            for one, other in pairwise(members):
                parent[_root(parent, one)] = _root(parent, other)
    return [_root(parent, at) for at in range(len(texts))]


def _marks(found: str | Iterable[object]) -> Iterable[object]:
    if isinstance(found, str):
        return [found] if found else []
    return found


def _bands(text: str) -> list[tuple[int, ...]]:
    """Four smallest hashes, and the four after them: equal ones mean mostly equal texts."""
    ordered = sorted(shingles(text))
    half = SIGNATURE // 2
    return [tuple(ordered[at : at + half]) for at in (0, half) if len(ordered) >= at + half]


def _root(parent: list[int], at: int) -> int:
    while parent[at] != at:
        parent[at] = parent[parent[at]]
        at = parent[at]
    return at
