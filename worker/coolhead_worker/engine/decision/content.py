"""Structured content as the text that decision models were trained on.

Guarantee: pure; a text stays as it is, objects and lists are JSON with ", " and ": " and no escapes
beyond those that JSON needs. Both llama.cpp's `tojson` and NoulXP write them so.
"""

from __future__ import annotations

import json

from coolhead.questions import Content


def spaced(content: Content, *, sort_keys: bool = False) -> str:
    """The text, or JSON; `sort_keys` sorts the keys of all objects."""
    if isinstance(content, str):
        return content
    return json.dumps(content, ensure_ascii=False, sort_keys=sort_keys)
