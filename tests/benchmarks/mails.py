"""Mails as they are sent, with a header that would tell where they were collected."""

from __future__ import annotations

TELLING = "Received: from lists.example\nX-Spam-Status: Yes\nList-Id: <fork.example>\nFrom: a@b\nTo: c@d\n"


def mail(subject: str, body: str, header: str = "Content-Type: text/plain\n") -> str:
    return f"{TELLING}Subject: {subject}\n{header}\n{body}"
