"""A small vocabulary: greedy longest match over given pieces, single characters for the rest."""

from __future__ import annotations

import re

CONTROLS = ("<|im_end|>", "<|im_start|>")
_NAMES = re.compile("(" + "|".join(map(re.escape, CONTROLS)) + ")")


class SmallVocabulary:
    def __init__(self, *pieces: str) -> None:
        self.ids = {piece: 0x110000 + number for number, piece in enumerate(sorted(set(pieces)))}
        self.longest = max(map(len, self.ids), default=1)
        self.controls = {name: 0x120000 + number for number, name in enumerate(CONTROLS)}

    def tokens(self, text: str, *, control: bool = False) -> list[int]:
        if not control:
            return self._plain(text)
        parts = (([self.controls[s]] if s in self.controls else self._plain(s)) for s in _NAMES.split(text))
        return [token for part in parts for token in part]

    def _plain(self, text: str) -> list[int]:
        ids, at = [], 0
        while at < len(text):
            sizes = range(min(self.longest, len(text) - at), 1, -1)
            size = next((size for size in sizes if text[at : at + size] in self.ids), 1)
            ids.append(self.id_of(text[at : at + size]))
            at += size
        return ids

    def id_of(self, piece: str) -> int:
        """Single characters are their code point, pieces come after all of them."""
        return self.ids.get(piece, ord(piece[0]))
