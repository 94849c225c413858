"""A prompt before it is tokenised: who said which part of it.

Guarantee: pure; text of a user stays marked as such from the template to the tokens, whatever the
template does with it, so it can never turn into a control token or into template syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FIELD = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Escape:
    """How a template spells single characters of a text; `table`: (code point, spelling)."""

    table: tuple[tuple[int, str], ...] = ()

    def spell(self, text: str) -> str:
        """The text as it stands in the prompt."""
        return text.translate(dict(self.table)) if self.table else text


AS_IS = Escape()


@dataclass(frozen=True, slots=True)
class Told:
    """Words of the model's author; names of control tokens in them are meant."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words of a user: of a question's instructions, options or levels."""

    text: str


@dataclass(frozen=True, slots=True)
class Stated:
    """Where the state stands, and how it is spelt there."""

    escape: Escape = AS_IS


@dataclass(frozen=True, slots=True)
class Cut:
    """What stands before and what stands after are tokenised apart."""


Part = Told | Said | Stated | Cut
Script = tuple[Part, ...]


def filled(template: str, values: Mapping[str, Script]) -> Script:
    """The template with each `{name}` replaced once; an unknown name stays as it is."""
    parts: list[Part] = []
    at = 0
    for match in _FIELD.finditer(template):
        value = values.get(match[1])
        if value is not None:
            parts += [Told(template[at : match.start()]), *value]
            at = match.end()
    return tidy((*parts, Told(template[at:])))


def fields(template: str) -> set[str]:
    """The names that a template has places for."""
    return set(_FIELD.findall(template))


def tidy(parts: Iterable[Part]) -> Script:
    """The same script without empty texts, neighbours of one voice joined."""
    done: list[Part] = []
    for part in parts:
        last = done[-1] if done else None
        if isinstance(part, Told | Said) and not part.text:
            continue
        if isinstance(part, Told) and isinstance(last, Told):
            done[-1] = Told(last.text + part.text)
        elif isinstance(part, Said) and isinstance(last, Said):
            done[-1] = Said(last.text + part.text)
        else:
            done.append(part)
    return tuple(done)


def text_with(script: Script, state: str) -> str:
    """The whole prompt as one text."""
    return "".join(_text(part, state) for part in script)


def _text(part: Part, state: str) -> str:
    if isinstance(part, Stated):
        return part.escape.spell(state)
    return "" if isinstance(part, Cut) else part.text
