"""The letters and codes that stand for options, as far as a vocabulary has them as one token.

Guarantee: pure; codes come in the order in which the models were trained, each is one token of its
own, tokenised alone (source: llama.cpp, tools/server/server-decision.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from string import ascii_letters, ascii_uppercase

from coolhead.errors import ModelUnsupported
from coolhead.questions import MAX_OPTIONS
from coolhead_worker.engine.decision.metadata import DecisionKind
from coolhead_worker.engine.decision.speech import Tokeniser

Code = tuple[str, int]
"""How an option is shown, and the token at which it is read."""

OPENJEV = ascii_uppercase + ascii_letters[:26]


def codes_of(kind: DecisionKind, tokeniser: Tokeniser) -> tuple[Code, ...]:
    """All codes of a model, as many as a question may have options.

    Raises:
        ModelUnsupported: a letter of an openjev model is not one token, or there are less than nine
            codes (the ratings of a lev model).
    """
    if kind is DecisionKind.OPENJEV:
        return tuple((letter, required(letter, tokeniser)) for letter in OPENJEV)
    codes = tuple(islice(_single(tokeniser), MAX_OPTIONS))
    if len(codes) < 9:
        raise ModelUnsupported(f"its vocabulary has only {len(codes)} one-token codes: wrong file?")
    return codes


def kind_of(marks: Sequence[str]) -> str:
    """The name of a readout at these marks: letters, codes, digits or names."""
    if all(mark.isdigit() for mark in marks):
        return "digits"
    if all(mark.isalpha() and mark.isascii() and len(mark) <= 2 for mark in marks):
        return "letters" if all(len(mark) == 1 for mark in marks) else "codes"
    return "names"


def required(mark: str, tokeniser: Tokeniser) -> int:
    """The one token of a mark.

    Raises:
        ModelUnsupported: it is not one token.
    """
    ids = tokeniser.tokens(mark)
    if len(ids) != 1:
        raise ModelUnsupported(
            f"its label {mark!r} is not one token of its vocabulary: is it the right file?"
        )
    return ids[0]


def _single(tokeniser: Tokeniser) -> Iterator[Code]:
    for letters in (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2))):
        ids = tokeniser.tokens(letters)
        if len(ids) == 1:
            yield letters, ids[0]
