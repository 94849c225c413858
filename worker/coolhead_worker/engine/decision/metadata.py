"""What a GGUF file says of itself as a decision model: kind, template and temperatures.

Guarantee: pure; a `DecisionSpec` that exists names a kind that this engine reads, holds a template
and positive temperatures. Keys and buckets are those of llama.cpp's `/v1/systemone`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from coolhead.errors import ModelCorrupt, ModelUnsupported, one_line
from coolhead.questions import Question

Meta = Callable[[str], str | None]
"""A value of the GGUF metadata as text; None when absent."""

TEMPLATE = "tokenizer.chat_template.systemone"
TYPES = ("choice", "score", "noul")


class DecisionKind(StrEnum):
    """Kinds that answer with one letter or code at the end of the prompt."""

    OPENJEV = "openjev"  #: A-Z, a-z; yes before no
    LEV = "lev"  #: codes; choices in both orders; yes/no as a rating in nine steps
    NIMBLE = "nimble"  #: codes; the question stands in a JSON schema


_BANDS = ((2, "2"), (5, "3_5"), (10, "6_10"), (math.inf, "11"))
_LEV_BANDS = ((8, "small"), (26, "mid"), (math.inf, "large"))


@dataclass(frozen=True, slots=True)
class DecisionSpec:
    """One decision model.

    `template`: Jinja text of the prompt. `temperatures`: by "type" and "type.bucket", each above 0.
    """

    kind: DecisionKind
    template: str
    temperatures: tuple[tuple[str, float], ...]

    def temperature(self, question: Question) -> float | None:
        """The bucket's temperature, else that of the type, else None."""
        known = dict(self.temperatures)
        bucketed = f"{question.type}.{bucket(self.kind, len(question.labels))}"
        return known.get(bucketed, known.get(question.type))


def bucket(kind: DecisionKind, options: int) -> str:
    """The name of the bucket that holds questions with so many options."""
    return next(name for most, name in _bands(kind) if options <= most)


def decision_spec(meta: Meta) -> DecisionSpec | None:
    """Read the metadata; None when the file is no decision model.

    Raises:
        ModelUnsupported: a kind that is not read here, or no template.
        ModelCorrupt: a temperature that is no number above 0.
    """
    prefix = f"{meta('general.architecture')}.decision."
    said = meta(prefix + "type")
    if said is None:
        return None
    kind = _kind(said)
    template = meta(TEMPLATE)
    if not template:
        raise ModelUnsupported(f"a decision model of the kind {kind} without {TEMPLATE}: convert it again")
    return DecisionSpec(kind, template, tuple(_temperatures(kind, prefix + "temperature.", meta)))


def _kind(said: str) -> DecisionKind:
    try:
        return DecisionKind(said)
    except ValueError:
        known = ", ".join(DecisionKind)
        raise ModelUnsupported(
            f"a decision model of the kind {one_line(said)[:40]!r} can't be read here, only {known}: "
            "use one of these, or serve it with llama.cpp"
        ) from None


def _bands(kind: DecisionKind) -> tuple[tuple[float, str], ...]:
    return _LEV_BANDS if kind is DecisionKind.LEV else _BANDS


def _temperatures(kind: DecisionKind, prefix: str, meta: Meta) -> list[tuple[str, float]]:
    names = [name for type_ in TYPES for name in (type_, *(f"{type_}.{band}" for _, band in _bands(kind)))]
    found = [(name, meta(prefix + name)) for name in names]
    return [(name, _positive(prefix + name, text)) for name, text in found if text is not None]


def _positive(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ModelCorrupt(f"{key} is {one_line(text)[:40]!r}, not a number above 0: convert the model again")
    return value
