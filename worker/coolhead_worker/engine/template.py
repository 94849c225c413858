"""The dialect of models that are spoken to in text: chat models and base models.

Guarantee: a prompt is head + state + branch (or, pinned, head with all questions + state + branch),
pieces that are tokenised apart, so no token of one piece depends on another; control tokens are
written only here, never read out of a state or a question; a digest changes whenever any text does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coolhead.policy import Debias
from coolhead.questions import Question
from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.orders import averaged, orders_of
from coolhead_worker.engine.prompt import asked, words_digest
from coolhead_worker.engine.protocol import PinnedSet, PlanKind, Readout, Shown
from coolhead_worker.engine.readout import Ending, Labels, Vocabulary, choose, placed

SYSTEM = "You are a decision engine. Read the message and answer each question about it with a single token."

PROBE = "The author of this message wants to"
"""An unfinished sentence that asks for an intention: what a model is about to say next is what heads
read. Chosen among twelve, and over several at once, by nested cross-validation."""


@dataclass(frozen=True)
class Template:
    """How one family of models is spoken to; a `Dialect`.

    `system`: what stands first, after the vocabulary's own beginning token. `opening`: ends the
    user's part and opens the answer; `tail` is its plain end, after the last control token, `lead`
    stands between it and a label, `stop` ends an answer. `before`: what stands before the probe.
    """

    name: str
    system: tuple[Piece, ...]
    opening: Piece
    tail: str
    lead: str
    stop: Piece
    before: Piece

    pins = True
    adaptive = True
    bos = True

    def digest(self, kind: PlanKind) -> str:
        """See `Dialect.digest`."""
        said: tuple[object, ...] = (self.name, self.head())
        if kind is PlanKind.TRUNK:
            said = (*said, self.probe())
        else:
            said = (*said, self.opening, self.tail, self.lead, self.stop, words_digest())
            said = (*said, _FRAME if kind is PlanKind.PINNED else _FRAME["question"])
        return hashlib.sha256(repr(said).encode()).hexdigest()[:8]

    def head(self) -> tuple[Piece, ...]:
        """See `Dialect.head`."""
        return (*self.system, Piece(_FRAME["message"]))

    def state(self, text: str) -> str:
        """See `Dialect.state`: as it is."""
        return text

    def row(
        self,
        question: Question,
        labels: Labels,
        order: Sequence[int],
        state: str,
    ) -> None:
        """See `Dialect.row`: every prompt begins with head and state."""

    def orders(self, question: Question, level: Debias) -> tuple[tuple[int, ...], ...]:
        """See `Dialect.orders`."""
        return orders_of(question, level)

    def fold(
        self,
        question: Question,  # noqa: ARG002 - the seam folds by question
        labels: Labels,
        shown: Sequence[tuple[tuple[int, ...], Readout]],
    ) -> Readout:
        """See `Dialect.fold`."""
        return averaged([placed(said, labels, order) for order, said in shown])

    def labels(self, question: Question, vocabulary: Vocabulary) -> Labels:
        """See `Dialect.labels`."""
        stop = vocabulary.tokens(self.stop.text, control=self.stop.control)
        ending = Ending(self.tail, self.lead, stop[0] if len(stop) == 1 else None)
        return choose(question, vocabulary, ending)

    def branch(self, question: Question, labels: Labels, order: Sequence[int]) -> tuple[Piece, ...]:
        """See `Dialect.branch`."""
        said = _FRAME["question"] + asked(question, labels.kind, labels.marks, order)
        return (Piece(said), self._opened(labels))

    def pinned_head(self, pinned: PinnedSet, labels: Mapping[str, Labels]) -> tuple[Piece, ...]:
        """See `Dialect.pinned_head`."""
        said = "".join(
            _FRAME["pinned"].format(name=name)
            + asked(question, labels[name].kind, labels[name].marks, range(len(question.labels)))
            for name, question in pinned.questions.items()
        )
        shown = "".join(_shown(one, labels) for one in pinned.examples)
        return (*self.system, Piece(_FRAME["intro"] + said + shown + _FRAME["between"]))

    def pinned_branch(self, name: str, labels: Labels) -> tuple[Piece, ...]:
        """See `Dialect.pinned_branch`."""
        return (Piece(_FRAME["again"].format(name=name)), self._opened(labels))

    def probe(self) -> tuple[Piece, ...]:
        """See `Dialect.probe`."""
        return (self.before, Piece(PROBE))

    def temperature(self, question: Question) -> float | None:  # noqa: ARG002 - the seam asks by question
        """None: nobody calibrated plain text models for us."""
        return None

    def _opened(self, labels: Labels) -> Piece:
        text = self.opening.text + (self.lead if labels.spaced else "")
        return Piece(text, control=self.opening.control)


def _shown(example: Shown, labels: Mapping[str, Labels]) -> str:
    """An example as it reads: its state, then the mark of each right answer after the question's id."""
    said = "".join(
        _FRAME["shown"].format(name=name, mark=labels[name].marks[at]) for name, at in example.answers.items()
    )
    return _FRAME["example"] + example.state + said


_FRAME = {
    "message": "Message:\n",
    "question": "\n\n",
    "intro": "Questions:",
    "pinned": "\n\n{name}: ",
    "example": "\n\nExample:\n",
    "shown": "\n\n{name}: {mark}",
    "between": "\n\nMessage:\n",
    "again": "\n\n{name}:",
}

_OPENING = Piece("<|im_end|>\n<|im_start|>assistant\n", control=True)

CHATML = Template(
    name="chatml",
    system=(
        Piece("<|im_start|>system\n", control=True),
        Piece(SYSTEM),
        Piece("<|im_end|>\n<|im_start|>user\n", control=True),
    ),
    opening=_OPENING,
    tail="assistant\n",
    lead="",
    stop=Piece("<|im_end|>", control=True),
    before=_OPENING,
)
PLAIN = Template(
    name="plain",
    system=(Piece(SYSTEM), Piece("\n\n")),
    opening=Piece("\n\nAnswer:"),
    tail="\n\nAnswer:",
    lead=" ",
    stop=Piece("\n"),
    before=Piece("\n\n"),
)


def template_for(chat_template: str | None) -> Template:
    """The template for a model whose metadata holds `chat_template` (None: a base model)."""
    return CHATML if chat_template and "<|im_start|>" in chat_template else PLAIN
