"""What dialects of NoulXP packages have in common: their files, limits, states and temperatures.

Guarantee: a question or a state beyond the limits that the package states is refused, never cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from coolhead.errors import InvalidQuestion, ModelUnsupported, StateTooLong
from coolhead.questions import Content, Question, Score
from coolhead_worker.engine.decision.authored import Authored
from coolhead_worker.engine.decision.calibration_file import CalibrationFile
from coolhead_worker.engine.decision.codes import kind_of, required
from coolhead_worker.engine.decision.prompt_file import PromptFile
from coolhead_worker.engine.decision.speech import Tokeniser
from coolhead_worker.engine.decision.wording import state_text
from coolhead_worker.engine.dialect import Piece
from coolhead_worker.engine.readout import Labels


class Limits(BaseModel):
    """What a package says that its model was made for; `max_tokens`: of a whole prompt."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    max_tokens: Annotated[int, Field(ge=1)]
    max_options: Annotated[int, Field(ge=2)]
    max_levels: Annotated[int, Field(ge=2)] | None = None


class Packaged(Authored):
    """The dialect of one package.

    Args:
        file: its prompt.
        calibration: its temperatures.
        limits: of its manifest.
        tokeniser: the vocabulary of its model.
    """

    def __init__(
        self, file: PromptFile, calibration: CalibrationFile, limits: Limits, tokeniser: Tokeniser
    ) -> None:
        super().__init__("noulxp", tokeniser)
        self._file, self._calibration, self._limits = file, calibration, limits
        self._ids: dict[str, int] = {}

    def state(self, text: str) -> str:
        """See `Authored.state`; an empty state may have words of its own."""
        return super().state(text or self._file.state.empty or "")

    def state_text(self, state: Content) -> str:
        """See `Authored.state_text`."""
        return state_text(self._file.state, state)

    def temperature(self, question: Question) -> float:
        """See `Dialect.temperature`; the standard has one for every question."""
        return self._calibration.of(question)

    def row(
        self, question: Question, labels: Labels, order: Sequence[int], state: str
    ) -> tuple[Piece, ...] | None:
        """See `Dialect.row`.

        Raises:
            StateTooLong: longer than the package says that its model reads.
        """
        alone = super().row(question, labels, order, state)
        context = (*self.head(), Piece(self.state(state)))
        self._fits(alone or (*context, *self.branch(question, labels, order)), self._limits.max_tokens)
        if self._file.context.max_tokens is not None:
            self._fits(context, self._file.context.max_tokens)
        return alone

    def _fits(self, pieces: Sequence[Piece], most: int) -> None:
        # Tokens are only counted where there may be too many: hardly any is shorter than a byte.
        if sum(len(piece.text.encode()) + 1 for piece in pieces) <= most:
            return
        count = sum(len(self.tokeniser.tokens(piece.text, control=piece.control)) for piece in pieces)
        if count > most:
            raise StateTooLong(
                f"the state and what belongs to it have {count} tokens, this package reads at most {most}: "
                "shorten it"
            )

    def _check(self, question: Question, most: int) -> None:
        """Refuse more options or levels than the model, or one layout of it, was made for."""
        count, most = len(question.labels), min(most, self._limits.max_options)
        if isinstance(question, Score) and self._limits.max_levels is not None:
            most = min(most, self._limits.max_levels)
        if count > most:
            raise InvalidQuestion(
                f"this model reads at most {most} options in a {question.type}, not {count}"
            )

    def _read_at(self, marks: tuple[str, ...]) -> Labels:
        for mark in marks:
            if mark not in self._ids:
                self._ids[mark] = required(mark, self.tokeniser)
        if len({self._ids[mark] for mark in marks}) < len(marks):
            raise ModelUnsupported("two of its labels are the same token: is it the right file?")
        return Labels(kind_of(marks), marks, tuple(self._ids[mark] for mark in marks), spaced=False)
