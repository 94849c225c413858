"""How a NoulXP package with a layout for each type is spoken to (standard 0.2).

Guarantee: pure; rows are those of NoulXP's reference runtime: tokenised whole, in the model's chat
template, one for each cyclic shift of the options where the package asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from coolhead.errors import InvalidQuestion, ModelUnsupported
from coolhead.questions import Choice, Noul, Question
from coolhead_worker.engine.decision.authored import Order
from coolhead_worker.engine.decision.calibration_file import CalibrationFile
from coolhead_worker.engine.decision.fold import Mean, by_label, over_orders
from coolhead_worker.engine.decision.packaged import Limits, Packaged
from coolhead_worker.engine.decision.prompt_file import Layout, PromptFile, Rotations, TypeLayout, Types
from coolhead_worker.engine.decision.script import Part, Script, Stated, Told, filled, text_with, tidy
from coolhead_worker.engine.decision.speech import Tokeniser
from coolhead_worker.engine.decision.wording import as_requested, asked, worded
from coolhead_worker.engine.protocol import Floats
from coolhead_worker.engine.readout import Labels, Vocabulary

_NOUL_KEYS = ("true", "false")  # in the order of the labels


class TypedDialect(Packaged):
    """The dialect of one package.

    Args:
        file: its prompt.
        types: its layouts.
        calibration: its temperatures.
        limits: of its manifest.
        tokeniser: the vocabulary of its model.

    Raises:
        ModelUnsupported: a label is not one token, or answers are divided by a content-free prior.
    """

    def __init__(
        self,
        file: PromptFile,
        types: Types,
        calibration: CalibrationFile,
        limits: Limits,
        tokeniser: Tokeniser,
    ) -> None:
        super().__init__(file, calibration, limits, tokeniser)
        self._types = types
        rotations = file.rotations or Rotations()
        if rotations.prior.kind != "none":
            raise ModelUnsupported(
                "a package with a content-free prior can't be read here: export it without"
            )
        self._mean = Mean(rotations.combine)
        for layout in _layouts(types):  # every label, so that a wrong vocabulary is refused at the start
            self._read_at(layout.labels)
        self._settle((file, calibration))

    def labels(self, question: Question, vocabulary: Vocabulary) -> Labels:  # noqa: ARG002  # the model's own
        """See `Authored.labels`; where labels stay with their options, in the order of the options.

        Raises:
            InvalidQuestion: more options than this model reads.
        """
        asked_of, count = self._type(question), len(question.labels)
        self._check(question, asked_of.most)
        marks = asked_of.layout(count).labels[:count]
        if self._attached(question):
            marks = tuple(marks[index] for index in as_requested(question))
        return self._read_at(marks)

    def shown(self, question: Question) -> tuple[Order, ...]:
        """See `Authored.shown`; each is a permutation."""
        base = self._listing(question)
        if self._type(question).rotate == "none":
            return (base,)
        return tuple(base[shift:] + base[:shift] for shift in range(len(base)))

    def combined(self, question: Question, orders: Sequence[Order], rows: Sequence[Floats]) -> Floats:
        """See `Authored.combined`."""
        shown = zip(rows, orders, strict=True)
        told = [row if self._attached(question) else by_label(row, order) for row, order in shown]
        return over_orders(told, self._mean, self.temperature(question) or 1.0)

    def script(self, question: Question, labels: Labels, order: Sequence[int]) -> Script:
        """See `Authored.script`."""
        context = filled(self._file.context.template, {"state": (Stated(),)})
        user = tidy((*context, *self._question(question, labels, order)))
        chat = self._file.chat
        return user if chat is None else filled(chat.template, {"system": (Told(chat.system),), "user": user})

    def _question(self, question: Question, labels: Labels, order: Sequence[int]) -> Script:
        layout = self._type(question).layout(len(question.labels))
        written = worded(self._file.options, question)
        if isinstance(question, Choice) and len({text_with(one, "") for one in written}) != len(written):
            raise InvalidQuestion("two options of this question read the same")
        legend = tuple(part for index in self._listing(question) for part in written[index])
        head = filled(
            layout.head, {"instructions": asked(self._file.instructions, question), "legend": legend}
        )
        parts: list[Part] = [*head]
        for place, index in enumerate(order):
            mark = labels.marks[index if self._attached(question) else place]
            between = layout.separator if place else ""
            said = filled(layout.option, {"label": (Told(mark),), "text": written[index]})
            parts += [Told(between), *said]
        return tidy((*parts, Told(layout.tail)))

    def _listing(self, question: Question) -> tuple[int, ...]:
        """The first order: as requested, by text, or as the package names the two sides."""
        listing = self._type(question).listing
        if isinstance(listing, tuple):
            return tuple(_NOUL_KEYS.index(key) for key in listing)
        requested = as_requested(question)
        if listing == "request":
            return requested
        texts = [text_with(option, "") for option in worded(self._file.options, question)]
        return tuple(sorted(requested, key=lambda index: texts[index]))

    def _type(self, question: Question) -> TypeLayout:
        if isinstance(question, Noul):
            return self._types.noul
        return self._types.choice if isinstance(question, Choice) else self._types.score

    def _attached(self, question: Question) -> bool:
        return self._type(question).labels == "attached"


def _layouts(types: Types) -> list[Layout]:
    return [layout for one in (types.choice, types.score, types.noul) for layout in one.layouts]
