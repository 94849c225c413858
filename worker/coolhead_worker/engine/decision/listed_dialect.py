"""How a NoulXP package with one layout for all types is spoken to (standard 0.1).

Guarantee: pure; rows are those of NoulXP's reference runtime: context and question are tokenised
apart, options are listed under letters, levels are listed too or asked one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coolhead.errors import ModelCorrupt
from coolhead.questions import Content, Question, Score
from coolhead_worker.engine.decision.authored import Order
from coolhead_worker.engine.decision.calibration_file import CalibrationFile
from coolhead_worker.engine.decision.fold import by_label, one_by_one
from coolhead_worker.engine.decision.packaged import Limits, Packaged
from coolhead_worker.engine.decision.prompt_file import Listed, PromptFile
from coolhead_worker.engine.decision.script import Cut, Part, Said, Script, Stated, Told, filled, tidy
from coolhead_worker.engine.decision.speech import Tokeniser
from coolhead_worker.engine.decision.wording import as_requested, asked, described, worded
from coolhead_worker.engine.protocol import Floats
from coolhead_worker.engine.readout import Labels, Vocabulary


class ListedDialect(Packaged):
    """The dialect of one package.

    Args:
        file: its prompt.
        listed: the layout of all types in it.
        calibration: its temperatures.
        limits: of its manifest.
        tokeniser: the vocabulary of its model.

    Raises:
        ModelUnsupported: a label is not one token.
        ModelCorrupt: `score.level_strip` is no regular expression.
    """

    def __init__(
        self,
        file: PromptFile,
        listed: Listed,
        calibration: CalibrationFile,
        limits: Limits,
        tokeniser: Tokeniser,
    ) -> None:
        super().__init__(file, calibration, limits, tokeniser)
        self._listed, self._levels = listed, listed.levels
        self._strip = _compiled(listed.levels.level_strip)
        self._read_at(listed.labels)  # every label, so that a wrong vocabulary is refused at the start
        self._settle((file, calibration))

    def labels(self, question: Question, vocabulary: Vocabulary) -> Labels:  # noqa: ARG002  # the model's own
        """See `Authored.labels`; of levels that are asked one by one, the answers to each.

        Raises:
            InvalidQuestion: more options than this model reads.
        """
        if self._alone(question):
            self._check(question, len(question.labels))
            return self._read_at(self._listed.labels[: len(self._levels.options)])
        self._check(question, self._listed.most)
        return self._read_at(self._listed.labels[: len(question.labels)])

    def shown(self, question: Question) -> tuple[Order, ...]:
        """See `Authored.shown`; one level a row where levels are asked one by one."""
        listed = as_requested(question)
        return tuple((level,) for level in listed) if self._alone(question) else (listed,)

    def combined(self, question: Question, orders: Sequence[Order], rows: Sequence[Floats]) -> Floats:
        """See `Authored.combined`."""
        if self._alone(question):
            return one_by_one(rows, self._levels.read, self.temperature(question) or 1.0)
        return by_label(rows[0], orders[0])

    def script(self, question: Question, labels: Labels, order: Sequence[int]) -> Script:
        """See `Authored.script`."""
        said = asked(self._file.instructions, question)
        if isinstance(question, Score) and self._alone(question):
            said = self._one_level(said, question.criteria[order[0]])
            options: list[Script] = [(Told(option),) for option in self._levels.options]
        else:
            written = worded(self._file.options, question)
            options = [written[index] for index in order]
        context = filled(self._file.context.template, {"state": (Stated(),)})
        return tidy((*context, Cut(), *self._question(said, labels.marks, options)))

    def _alone(self, question: Question) -> bool:
        return isinstance(question, Score) and self._levels.mode == "isolated"

    def _one_level(self, said: Script, level: Content) -> Script:
        text = described(level) or ""
        if self._strip is not None:
            text = self._strip.sub("", text, count=1)
        return filled(self._levels.question, {"instructions": said, "level": (Said(text),)})

    def _question(self, said: Script, marks: Sequence[str], options: Sequence[Script]) -> list[Part]:
        """The question's piece: tokenised whole, or apart at each label."""
        cut: list[Part] = [] if self._listed.joined(len(options)) else [Cut()]
        parts: list[Part] = [*filled(self._listed.text.head, {"instructions": said})]
        before, after = self._listed.text.option.split("{label}")
        for mark, option in zip(marks, options, strict=True):
            parts += [*cut, Told(before), *cut, Told(mark), *cut, *filled(after, {"text": option})]
        return [*parts, *cut, Told(self._listed.text.tail)]


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error:
        raise ModelCorrupt("prompt.json: score.level_strip is no regular expression") from None
