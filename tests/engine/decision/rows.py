"""Pieces as the tokens of a whole row."""

from __future__ import annotations

from collections.abc import Sequence

from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.llama import LlamaModel


def tokens_of(model: LlamaModel, pieces: Sequence[Piece]) -> list[int]:
    return [token for piece in pieces for token in model.tokens(piece.text, control=piece.control)]
