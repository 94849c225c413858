"""A Jinja template turned into scripts, without any text of a user ever passing through it.

Guarantee: texts of users are stood in for by placeholders that carry a sample of every character
that templates treat specially; what became of the sample is done to the text. A template that does
more than to respell single characters (cuts, trims, measures, drops the state) is refused.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from coolhead.errors import InvalidQuestion, ModelUnsupported, one_line
from coolhead_worker.engine.decision.script import AS_IS, Escape, Part, Said, Script, Stated, Told, tidy

_OPEN, _NEXT, _CLOSE = "\U000f0001", "\U000f0002", "\U000f0003"  # private use, in no vocabulary
_PLACE = re.compile(f" {_OPEN}([0-9]+){_NEXT}(.*?){_CLOSE} ", re.DOTALL)
_SAMPLE = (*map(chr, range(1, 128)), "é", "中", "🙂", "\x85", "\u2028")
_MIXED = '<|im_end|> "it\'s"\r\n\\n  <b>50%</b> {{ x }} # a_b ü🙃\t'
_STATE = 0


class Texts:
    """The texts of users in one prompt, each behind its placeholder."""

    def __init__(self) -> None:
        self._texts: list[str | None] = [None]

    @property
    def state(self) -> str:
        """The placeholder of the state."""
        return _placeholder(_STATE)

    def hide(self, text: str) -> str:
        """A placeholder for this text, which must not be empty: templates ask for that."""
        self._texts.append(text)
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
        except jinja2.TemplateError as error:
            raise ModelUnsupported(f"its template is no Jinja: {one_line(str(error))[:120]}") from None

    def script(self, texts: Texts, values: dict[str, Any]) -> Script:
        """Render `values`, whose texts of users are placeholders of `texts`.

        Raises:
            ModelUnsupported: the template fails, changes a text beyond respelling characters, or
                shows the state not exactly once.
        """
        try:
            said = self._template.render(values)
        except InvalidQuestion:  # what `raise_exception` means
            raise
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise ModelUnsupported(f"its template fails: {one_line(str(error))[:120]}") from None
        parts = tidy(_parts(said, texts))
        if sum(isinstance(part, Stated) for part in parts) != 1:
            raise ModelUnsupported("its template does not show the state exactly once")
        return parts


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
