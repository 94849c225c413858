"""How a GGUF decision model is spoken to: its own template, letters, orders and temperatures.

Guarantee: pure; a prompt is what llama.cpp's `/v1/systemone` renders for a request with this one
question under the id `answer`; questions that it would refuse are refused, and so are those that the
template can't be followed for (the model itself, when that is so for the plainest questions).

The kinds differ in what they show and read (source: llama.cpp, tools/server/server-decision.cpp):
openjev shows yes before no and leaves the letters to its template; lev and nimble show no before
yes and are given the code of each option. lev reads a choice forward and backward and averages the
probabilities; a yes/no question it reads as the mean of nine ratings, at its first nine codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from coolhead.errors import InvalidQuestion, ModelUnsupported
from coolhead.questions import Choice, Content, Noul, NoulCriteria, Question
from coolhead_worker.engine.decision.authored import SAMPLES, Authored, Order
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
        self._try_out()
        self._settle(spec)

    def state_text(self, state: Content) -> str:
        """See `Authored.state_text`."""
        return spaced(state, sort_keys=self._spec.kind is DecisionKind.LEV)

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
        """See `Authored.script`.

        Raises:
            InvalidQuestion: the template refuses this question, or can't be followed for it.
        """
        try:
            return self._followed(question, labels, order)
        except ModelUnsupported as error:
            raise InvalidQuestion(f"the model can't be asked this question: {error}") from None

    def _try_out(self) -> None:
        """Refuse a template that can't be followed, before any question comes."""
        for question in SAMPLES:
            labels = self.labels(question, self.tokeniser)
            with suppress(InvalidQuestion):
                self._followed(question, labels, self.shown(question)[0])

    def _followed(self, question: Question, labels: Labels, order: Sequence[int]) -> Script:
        texts = Texts()
        said = self._written(question.instructions)
        return self._template.script(
            self._values(question, said, self._options(question, labels, order, _same)),
            self._values(question, texts.hide(said), self._options(question, labels, order, texts.hide)),
            texts,
        )

    def _values(
        self, question: Question, instructions: Content | None, options: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """What the template is given beside the state."""
        asked = {"id": ID, "type": question.type, "instructions": instructions, "options": options}
        # nimble is told all questions of a request; here each is asked alone.
        schema = {"questions": [asked]} if self._spec.kind is DecisionKind.NIMBLE else {}
        return {**asked, **schema, "images": []}

    def _rates(self, question: Question) -> bool:
        return isinstance(question, Noul) and self._spec.kind is DecisionKind.LEV

    def _options(
        self, question: Question, labels: Labels, order: Sequence[int], hide: Callable[[Any], Any]
    ) -> list[dict[str, Any]]:
        """The options as the template sees them; a code belongs to a place, not to an option."""
        # Only the names of a choice are words of a user; "true" and "0" are what templates ask for.
        name = hide if isinstance(question, Choice) else _same
        every: list[dict[str, Any]] = [
            {"key": name(key), "description": hide(self._written(said))} for key, said in _options(question)
        ]
        shown = [every[index] for index in order]
        if self._spec.kind is not DecisionKind.OPENJEV:
            for option, mark in zip(shown, labels.marks, strict=False):
                option["label"] = mark
        return shown

    def _written(self, content: Content | None) -> Content | None:
        """lev was trained with sorted keys."""
        written: Content | None = _sorted(content) if self._spec.kind is DecisionKind.LEV else content
        return written


def _same(content: Any) -> Any:
    return content


def _sorted(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _sorted(content[key]) for key in sorted(content)}
    return [_sorted(item) for item in content] if isinstance(content, list) else content


def _options(question: Question) -> list[tuple[str, Content | None]]:
    """(key, description) of each label, under llama.cpp's keys."""
    if isinstance(question, Noul):
        said = question.criteria or NoulCriteria()
        return [("true", said.true), ("false", said.false)]
    if isinstance(question, Choice):
        return list(question.criteria.items())
    return [(str(level), said) for level, said in enumerate(question.criteria)]
