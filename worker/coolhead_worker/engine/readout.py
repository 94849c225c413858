"""From one row of logits to label probabilities, and which tokens stand for the labels.

Guarantee: every label is read at a token that this vocabulary really produces at the real end of
the prompt, and no two labels share one; `read` is float64 and finite whenever its input is.

Readouts in order of preference: `names` (first token of each option's name), `strings` (where first
tokens collide: as many tokens as tell the names apart), `digits` for levels, `letters` (A, B, ... up
to 26), `codes` (two characters, one token; enough for 255 options).
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
from coolhead_worker.engine.protocol import Floats, Readout
from coolhead_worker.engine.strings import Path, distinguished, leaves_of, log_likelihoods


class Vocabulary(Protocol):
    """What turns text into token ids."""

    def tokens(self, text: str, *, control: bool = False) -> list[int]:
        """Token ids; names of control tokens stay plain text unless `control`."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How every prompt ends: `tail` is its last plain text, `lead` comes before a label, `stop` is
    the token that ends an answer (None: there is none)."""

    tail: str
    lead: str
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """The tokens that stand for the labels of one question.

    `marks`: how labels are shown in the prompt; letters and codes stand for places, so they stay
    where they are when the options are shown in another order. `ids`: (k,) first token of each; all
    different unless there are `paths`: (k,) token strings, of `strings` alone. `spaced`: the prompt
    must end with `lead`, because this vocabulary splits it from the label.
    """

    kind: str
    marks: tuple[str, ...]
    ids: tuple[int, ...]
    spaced: bool
    paths: tuple[Path, ...] = ()

    @property
    def leaves(self) -> tuple[Path, ...]:
        """Token strings to evaluate after the prompt; none where one token tells all."""
        return leaves_of(self.paths)

    @property
    def by_place(self) -> bool:
        """Whether a mark stands for a place in the list, not for a label."""
        return self.kind in ("letters", "codes")


def read(rows: Sequence[NDArray[np.floating]], labels: Labels) -> Readout:
    """Read one question.

    Args:
        rows: (n_vocab,) finite logits each: the prompt's last row, then those of `labels.leaves`.
        labels: k labels with ids below n_vocab.

    Returns:
        log-softmax over the k labels, and their share of the whole vocabulary's probability.
    """
    likely = _string_likelihoods(rows, labels) if labels.paths else _likelihoods(rows[0], labels.ids)
    inside = _log_sum_exp(likely)
    return Readout(likely - inside, min(1.0, float(np.exp(inside))), labels.kind)


def _likelihoods(row: NDArray[np.floating], ids: Sequence[int]) -> Floats:
    """(k,) log-probability of each token."""
    logits = np.asarray(row, dtype=np.float64)  # (n_vocab,)
    chosen: Floats = logits[list(ids)] - _log_sum_exp(logits)
    return chosen


def _string_likelihoods(rows: Sequence[NDArray[np.floating]], labels: Labels) -> Floats:
    logits = [np.asarray(row, dtype=np.float64) for row in rows]
    return log_likelihoods({at: row - _log_sum_exp(row) for at, row in enumerate(logits)}, labels.paths)


def placed(said: Readout, labels: Labels, order: Sequence[int]) -> Readout:
    """A readout of options shown in another order, in the order of the labels again."""
    if not labels.by_place:
        return said
    logits = np.empty_like(said.logits)
    logits[list(order)] = said.logits
    return Readout(logits, said.mass, said.kind)


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
            labels = _verified(kind, marks, vocabulary, ending, spaced=spaced)
            if labels is not None:
                return labels
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
        yield "strings", question.labels
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
    kind: str, marks: tuple[str, ...], vocabulary: Vocabulary, ending: Ending, *, spaced: bool
) -> Labels | None:
    """The tokens of the marks, or None when some mark has none or they can't be told apart."""
    blank = _blank(vocabulary, ending, spaced=spaced)
    said: list[Path] = []
    for mark in marks:
        after = _continuation(mark, vocabulary, ending, spaced=spaced)
        # A name that begins with the bare lead would be read at a token that begins anything.
        if not after or after[0] in blank or (len(after) > 1 and kind not in ("names", "strings")):
            return None
        said.append(tuple(after))
    first = tuple(tokens[0] for tokens in said)
    if kind == "strings":
        paths = distinguished(said, ending.stop)
        return Labels(kind, marks, first, spaced, paths) if paths else None
    return Labels(kind, marks, first, spaced) if len(set(first)) == len(first) else None


def _blank(vocabulary: Vocabulary, ending: Ending, *, spaced: bool) -> Iterable[int]:
    return () if spaced or not ending.lead else vocabulary.tokens(ending.lead)


def _continuation(mark: str, vocabulary: Vocabulary, ending: Ending, *, spaced: bool) -> list[int] | None:
    """The tokens that follow the prompt when the answer is `mark`; None when they merge with it."""
    before = ending.tail + (ending.lead if spaced else "")
    start = vocabulary.tokens(before)
    whole = vocabulary.tokens(before + ("" if spaced else ending.lead) + mark)
    return whole[len(start) :] if whole[: len(start)] == start else None
