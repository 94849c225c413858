"""A Jinja template turned into scripts: what it says, and who said which part of that.

Guarantee: texts of users are stood in for by placeholders that carry a sample of every character
that templates treat specially; what became of the sample is done to the text. The script is then
held against what the template makes of the texts themselves: one that does more than to respell
single characters (cuts, trims, measures, compares, drops the state) is refused, never guessed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from coolhead.errors import InvalidQuestion, ModelUnsupported, one_line
from coolhead_worker.engine.decision.script import (
    AS_IS,
    Escape,
    Part,
    Said,
    Script,
    Stated,
    Told,
    text_with,
    tidy,
)

_OPEN, _NEXT, _CLOSE = "\U000f0001", "\U000f0002", "\U000f0003"  # private use, in no vocabulary
_PLACE = re.compile(f" {_OPEN}([0-9]+){_NEXT}(.*?){_CLOSE} ", re.DOTALL)
_SAMPLE = (*map(chr, range(1, 128)), "é", "中", "🙂", "\x85", "\u2028")
_MIXED = '<|im_end|> "it\'s"\r\n\\n  <b>50%</b> {{ x }} # a_b ü🙃\t'
_STATE = 0
_STATES = ("x", f"No 7: true\n{_MIXED}" * 40)
"""States with which a script is tried: one short, one long, neither of them empty."""


class Texts:
    """The texts of users in one prompt, each behind its placeholder."""

    def __init__(self) -> None:
        self._texts: list[str | None] = [None]

    @property
    def state(self) -> str:
        """The placeholder of the state."""
        return _placeholder(_STATE)

    def hide(self, content: Any) -> Any:
        """The same content with a placeholder for each text in it, keys included.

        What is empty holds no words and stays, as templates ask for that.
        """
        if isinstance(content, dict):
            return {self.hide(key): self.hide(value) for key, value in content.items()}
        if isinstance(content, list):
            return [self.hide(item) for item in content]
        if not isinstance(content, str) or not content:
            return content
        self._texts.append(content)
        return _placeholder(len(self._texts) - 1)

    def part(self, number: int, escape: Escape) -> Part:
        """What stands behind a placeholder."""
        text = self._texts[number]
        return Stated(escape) if text is None else Said(escape.spell(text))


class Template:
    """A compiled template.

    Raises:
        ModelUnsupported: its syntax is not Jinja.
    """

    def __init__(self, source: str) -> None:
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelUnsupported(f"its template is no Jinja: {one_line(str(error))[:120]}") from None

    def script(self, values: Mapping[str, Any], told: Mapping[str, Any], texts: Texts) -> Script:
        """The prompt for any state.

        Args:
            values: what the template is given, without the state.
            told: the same with each text of a user hidden in `texts`.
            texts: what is hidden.

        Raises:
            ModelUnsupported: the template fails, does more to a text than to respell its characters,
                or shows the state not exactly once.
        """
        parts = tidy(_parts(self._rendered({**told, "state": texts.state}), texts))
        if sum(isinstance(part, Stated) for part in parts) != 1:
            raise ModelUnsupported("its template does not show the state exactly once")
        for state in _STATES:
            if self._plain({**values, "state": state}) != text_with(parts, state):
                raise ModelUnsupported("its template looks into texts, which can't be followed")
        return parts

    def _plain(self, values: Mapping[str, Any]) -> str | None:
        """The prompt of these texts themselves; None when the template refuses what it took hidden."""
        try:
            return self._rendered(values)
        except InvalidQuestion:  # may hold a text
            return None

    def _rendered(self, values: Mapping[str, Any]) -> str:
        try:
            return self._template.render(values)
        except InvalidQuestion:  # what `raise_exception` means
            raise
        except Exception as error:  # noqa: BLE001  # a template may raise anything; its words may hold a text
            raise ModelUnsupported(f"its template fails with {type(error).__name__}") from None


def _placeholder(number: int) -> str:
    # The spaces tell whether the template trims.
    return f" {_OPEN}{number}{_NEXT}{_NEXT.join((*_SAMPLE, _MIXED))}{_CLOSE} "


def _parts(said: str, texts: Texts) -> list[Part]:
    parts: list[Part] = []
    at = 0
    for match in _PLACE.finditer(said):
        parts += [_told(said[at : match.start()]), texts.part(int(match[1]), _escape(match[2]))]
        at = match.end()
    return [*parts, _told(said[at:])]


def _told(text: str) -> Told:
    if any(mark in text for mark in (_OPEN, _NEXT, _CLOSE)):
        raise ModelUnsupported("its template cuts or trims texts, which can't be followed")
    return Told(text)


@functools.lru_cache(maxsize=64)
def _escape(sample: str) -> Escape:
    """What the template did to each character of the sample."""
    spelt = sample.split(_NEXT)
    if len(spelt) != len(_SAMPLE) + 1:
        raise ModelUnsupported("its template cuts texts, which can't be followed")
    changed = [(ord(c), now) for c, now in zip(_SAMPLE, spelt, strict=False) if c != now]
    escape = Escape(tuple(changed)) if changed else AS_IS
    if escape.spell(_MIXED) != spelt[-1]:
        raise ModelUnsupported("its template rewrites texts, which can't be followed")
    return escape


def _environment() -> ImmutableSandboxedEnvironment:
    """Blocks are trimmed and JSON is written as llama.cpp and Hugging Face do for chat templates."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    return environment


def _tojson(
    value: Any,
    indent: int | None = None,
    separators: Sequence[str] | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
) -> str:
    if isinstance(value, jinja2.Undefined):
        value = None
    pair = (separators[0], separators[1]) if separators else None
    return json.dumps(value, indent=indent, separators=pair, sort_keys=sort_keys, ensure_ascii=ensure_ascii)


def _refuse(message: object) -> NoReturn:
    said = re.sub(f"{_OPEN}.*?{_CLOSE}", "...", str(message), flags=re.DOTALL)
    raise InvalidQuestion(f"the model's template refuses this question: {one_line(said)[:120]}")
