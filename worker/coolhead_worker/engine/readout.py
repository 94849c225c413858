"""From one row of logits to label probabilities, and which tokens stand for the labels.

Guarantee: every label is read at a token that this vocabulary really produces at the real end of
the prompt, and no two labels share one; `read` is float64 and finite whenever its input is.

Readouts in order of preference: `names` (first token of each option's name), `digits` for levels,
`letters` (A, B, ... up to 26), `codes` (two characters, one token; enough for 255 options).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from string import ascii_lowercase, ascii_uppercase
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from coolhead.errors import InvalidQuestion
from coolhead.questions import Choice, Noul, Question
from coolhead_worker.engine.protocol import Readout


class Vocabulary(Protocol):
    """What turns text into token ids."""

    def tokens(self, text: str) -> list[int]:
        """Token ids of plain text; names of control tokens stay plain text."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How every prompt ends: `tail` is its last plain text, `lead` comes before a label."""

    tail: str
    lead: str


@dataclass(frozen=True, slots=True)
class Labels:
    """The tokens that stand for the labels of one question.

    `marks`: how labels are shown in the prompt. `ids`: (k,) token ids, all different. `spaced`: the
    prompt must end with `lead`, because this vocabulary splits it from the label.
    """

    kind: str
    marks: tuple[str, ...]
    ids: tuple[int, ...]
    spaced: bool


def read(row: NDArray[np.floating], labels: Labels) -> Readout:
    """Read one row.

    Args:
        row: (n_vocab,) logits, finite.
        labels: k labels with ids below n_vocab.

    Returns:
        log-softmax over the k labels, and their share of the whole vocabulary's probability.
    """
    logits = np.asarray(row, dtype=np.float64)  # (n_vocab,)
    chosen = logits[list(labels.ids)]  # (k,)
    inside = _log_sum_exp(chosen)
    mass = float(np.exp(inside - _log_sum_exp(logits)))
    return Readout(chosen - inside, min(1.0, mass), labels.kind)


def _log_sum_exp(values: NDArray[np.float64]) -> np.float64:
    peak = values.max()
    total: np.float64 = peak + np.log(np.exp(values - peak).sum())
    return total


def choose(question: Question, vocabulary: Vocabulary, ending: Ending) -> Labels:
    """The best readout that this vocabulary supports for the question.

    Raises:
        InvalidQuestion: the vocabulary has too few one-token codes for so many options.
    """
    for kind, marks in _candidates(question):
        for spaced in _spacings(ending):
            ids = _verified(kind, marks, vocabulary, ending, spaced=spaced)
            if ids is not None:
                return Labels(kind, marks, ids, spaced)
    coded = coded_labels(len(question.labels), vocabulary, ending)
    if coded is None:
        raise InvalidQuestion("this model has too few one-token codes: ask with fewer options")
    return coded


def coded_labels(count: int, vocabulary: Vocabulary, ending: Ending) -> Labels | None:
    """Codes for `count` options, or None where the vocabulary has too few."""
    for spaced in _spacings(ending):
        found = list(islice(_codes(vocabulary, ending, spaced=spaced), count))
        if len(found) == count:
            marks, ids = zip(*found, strict=True)
            return Labels("codes", marks, ids, spaced)
    return None


def _spacings(ending: Ending) -> tuple[bool, ...]:
    return (False, True) if ending.lead else (False,)


def _candidates(question: Question) -> Iterator[tuple[str, tuple[str, ...]]]:
    count = len(question.labels)
    if isinstance(question, Choice):
        yield "names", question.labels
    elif isinstance(question, Noul):
        yield "names", ("Yes", "No")
    else:
        yield "digits", question.labels
    if count <= len(ascii_uppercase):
        yield "letters", tuple(ascii_uppercase[:count])


def _codes(vocabulary: Vocabulary, ending: Ending, *, spaced: bool) -> Iterator[tuple[str, int]]:
    """All two-character codes that are one token at the prompt's end, in a fixed order."""
    seen: set[int] = set()
    for mark in _code_texts():
        after = _continuation(mark, vocabulary, ending, spaced=spaced)
        if after is not None and len(after) == 1 and after[0] not in seen:
            seen.add(after[0])
            yield mark, after[0]


def _code_texts() -> Iterator[str]:
    alphabets = ((ascii_uppercase, ascii_uppercase), (ascii_lowercase, ascii_lowercase))
    mixed = ((ascii_uppercase, ascii_lowercase), (ascii_uppercase, "0123456789"))
    for first, second in (*alphabets, *mixed):
        yield from ("".join(pair) for pair in product(first, second))
    yield from ascii_uppercase + ascii_lowercase


def _verified(
    kind: str, marks: Sequence[str], vocabulary: Vocabulary, ending: Ending, *, spaced: bool
) -> tuple[int, ...] | None:
    """One token per mark, or None when some mark has none or two marks share one."""
    blank = _blank(vocabulary, ending, spaced=spaced)
    ids: list[int] = []
    for mark in marks:
        after = _continuation(mark, vocabulary, ending, spaced=spaced)
        whole = after is not None and (len(after) == 1 or (kind == "names" and len(after) > 1))
        # A name that begins with the bare lead would be read at a token that begins anything.
        if after is None or not whole or after[0] in blank or after[0] in ids:
            return None
        ids.append(after[0])
    return tuple(ids)


def _blank(vocabulary: Vocabulary, ending: Ending, *, spaced: bool) -> Iterable[int]:
    return () if spaced or not ending.lead else vocabulary.tokens(ending.lead)


def _continuation(mark: str, vocabulary: Vocabulary, ending: Ending, *, spaced: bool) -> list[int] | None:
    """The tokens that follow the prompt when the answer is `mark`; None when they merge with it."""
    before = ending.tail + (ending.lead if spaced else "")
    start = vocabulary.tokens(before)
    whole = vocabulary.tokens(before + ("" if spaced else ending.lead) + mark)
    return whole[len(start) :] if whole[: len(start)] == start else None
