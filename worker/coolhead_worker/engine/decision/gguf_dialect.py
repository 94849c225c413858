"""How a GGUF decision model is spoken to: its own template, letters, orders and temperatures.

Guarantee: pure; a prompt is what llama.cpp's `/v1/systemone` renders for a request with this one
question under the id `answer`; questions that it would refuse are refused.

The kinds differ in what they show and read (source: llama.cpp, tools/server/server-decision.cpp):
openjev shows yes before no and leaves the letters to its template; lev and nimble show no before
yes and are given the code of each option. lev reads a choice forward and backward and averages the
probabilities; a yes/no question it reads as the mean of nine ratings, at its first nine codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coolhead.errors import InvalidQuestion
from coolhead.questions import Choice, Content, Noul, NoulCriteria, Question
from coolhead_worker.engine.decision.authored import Authored, Order
from coolhead_worker.engine.decision.codes import codes_of, kind_of
from coolhead_worker.engine.decision.content import spaced
from coolhead_worker.engine.decision.fold import Mean, by_label, by_rating, over_orders
from coolhead_worker.engine.decision.metadata import DecisionKind, DecisionSpec
from coolhead_worker.engine.decision.script import Script
from coolhead_worker.engine.decision.speech import Tokeniser
from coolhead_worker.engine.decision.template import Template, Texts
from coolhead_worker.engine.protocol import Floats
from coolhead_worker.engine.readout import Labels, Vocabulary

ID = "answer"
RATINGS = 9  # 0 is certainly no, 8 is certainly yes


class GgufDialect(Authored):
    """The dialect of one decision model.

    Args:
        spec: what its metadata says.
        tokeniser: its vocabulary.

    Raises:
        ModelUnsupported: a template that can't be followed, or letters that are not one token.
    """

    def __init__(self, spec: DecisionSpec, tokeniser: Tokeniser) -> None:
        super().__init__(spec.kind.value, tokeniser)
        self._spec = spec
        self._codes = codes_of(spec.kind, tokeniser)
        self._template = Template(spec.template)
        self._settle(spec)

    def state_text(self, state: Content) -> str:
        """See `Authored.state_text`."""
        return self._text(state)

    def labels(self, question: Question, vocabulary: Vocabulary) -> Labels:  # noqa: ARG002  # known from the start
        """See `Authored.labels`; nine ratings for a yes/no question of a lev model.

        Raises:
            InvalidQuestion: no instructions, or more options than this model reads.
        """
        count = len(question.labels)
        if not question.instructions:
            raise InvalidQuestion(f"a {self.name} model needs instructions in every question")
        if count > len(self._codes):
            raise InvalidQuestion(f"this model reads at most {len(self._codes)} options, not {count}")
        marks, ids = zip(*self._codes[: RATINGS if self._rates(question) else count], strict=True)
        return Labels(kind_of(marks), marks, ids, spaced=False)

    def shown(self, question: Question) -> tuple[Order, ...]:
        """See `Authored.shown`; each is a permutation."""
        forward = tuple(range(len(question.labels)))
        if isinstance(question, Noul) and self._spec.kind is not DecisionKind.OPENJEV:
            return (forward[::-1],)
        if isinstance(question, Choice) and self._spec.kind is DecisionKind.LEV:
            return (forward, forward[::-1])
        return (forward,)

    def combined(self, question: Question, orders: Sequence[Order], rows: Sequence[Floats]) -> Floats:
        """See `Authored.combined`."""
        temperature = self.temperature(question) or 1.0
        if self._rates(question):
            return by_rating(rows[0], temperature)
        told = [by_label(row, order) for row, order in zip(rows, orders, strict=True)]
        return over_orders(told, Mean.PROBABILITY, temperature)

    def temperature(self, question: Question) -> float | None:
        """See `Dialect.temperature`."""
        return self._spec.temperature(question)

    def script(self, question: Question, labels: Labels, order: Sequence[int]) -> Script:
        """See `Authored.script`."""
        texts = Texts()
        asked: dict[str, Any] = {
            "id": ID,
            "type": question.type,
            "instructions": self._hidden(question.instructions, texts),
            "options": self._options(question, labels, order, texts),
        }
        # nimble is told all questions of a request; here each is asked alone.
        schema = {"questions": [asked]} if self._spec.kind is DecisionKind.NIMBLE else {}
        return self._template.script(texts, {**asked, **schema, "state": texts.state, "images": []})

    def _rates(self, question: Question) -> bool:
        return isinstance(question, Noul) and self._spec.kind is DecisionKind.LEV

    def _options(
        self, question: Question, labels: Labels, order: Sequence[int], texts: Texts
    ) -> list[dict[str, Any]]:
        """The options as the template sees them; a code belongs to a place, not to an option."""
        hidden: list[dict[str, Any]] = [
            {"key": _key(question, key, texts), "description": self._hidden(said, texts)}
            for key, said in _options(question)
        ]
        shown = [hidden[index] for index in order]
        if self._spec.kind is not DecisionKind.OPENJEV:
            for option, mark in zip(shown, labels.marks, strict=False):
                option["label"] = mark
        return shown

    def _hidden(self, content: Content | None, texts: Texts) -> Content | None:
        """A placeholder; what is empty holds no words and stays, as templates ask for that."""
        return texts.hide(self._text(content)) if content else content

    def _text(self, content: Content) -> str:
        """lev was trained with sorted keys."""
        return spaced(content, sort_keys=self._spec.kind is DecisionKind.LEV)


def _key(question: Question, key: str, texts: Texts) -> str:
    return texts.hide(key) if isinstance(question, Choice) else key


def _options(question: Question) -> list[tuple[str, Content | None]]:
    """(key, description) of each label, under llama.cpp's keys."""
    if isinstance(question, Noul):
        said = question.criteria or NoulCriteria()
        return [("true", said.true), ("false", said.false)]
    if isinstance(question, Choice):
        return list(question.criteria.items())
    return [(str(level), said) for level, said in enumerate(question.criteria)]
