"""How a NoulXP package words questions, options and states.

Guarantee: pure; texts of users stay marked as such. Indices are those of `question.labels`; NoulXP
itself lists the two sides of a yes/no question the other way round, no before yes.
"""

from __future__ import annotations

import json
from typing import Any

from coolhead.errors import InvalidQuestion
from coolhead.questions import Choice, Content, Noul, NoulCriteria, Question
from coolhead_worker.engine.decision.content import spaced
from coolhead_worker.engine.decision.prompt_file import Forms, Instructions, OptionForms, StateForm
from coolhead_worker.engine.decision.script import Said, Script, Told, filled


def as_requested(question: Question) -> tuple[int, ...]:
    """The labels' indices in the order in which NoulXP lists the options of a request."""
    forward = tuple(range(len(question.labels)))
    return forward[::-1] if isinstance(question, Noul) else forward


def asked(form: Instructions, question: Question) -> Script:
    """What is asked.

    Raises:
        InvalidQuestion: nothing, where the model needs it.
    """
    if question.instructions:
        return (Said(spaced(question.instructions)),)
    instead = form.fallback.get(question.type, "")
    if not instead and form.required:
        raise InvalidQuestion("this model needs instructions in every question")
    return (Told(instead),)


def worded(forms: OptionForms, question: Question) -> tuple[Script, ...]:
    """The options, in the order of the labels.

    Raises:
        InvalidQuestion: an option without the description that the model needs, or with one that it
            has no words for.
    """
    if isinstance(question, Noul):
        said = question.criteria or NoulCriteria()
        return (
            _worded(forms.noul.true, "true", 1, said.true),
            _worded(forms.noul.false, "false", 0, said.false),
        )
    if isinstance(question, Choice):
        named = enumerate(question.criteria.items())
        return tuple(_worded(forms.choice, name, at, described) for at, (name, described) in named)
    return tuple(_worded(forms.score, str(at), at, level) for at, level in enumerate(question.criteria))


def described(content: Content | None) -> str | None:
    """A description as text; None for none."""
    return None if content is None or content == "" else spaced(content)


def state_text(form: StateForm, state: Content) -> str:
    """A state as the author's code writes it."""
    if isinstance(state, str):
        return state
    turns = _turns(state) if form.messages else None
    if turns:
        return "\n".join(f"{role}: {said}" for role, said in turns)
    if form.json_form == "indent-2":
        return json.dumps(state, indent=2, ensure_ascii=False)
    return json.dumps(_numbered(state, form.index_arrays_from), ensure_ascii=False)


def _worded(forms: Forms, name: str, index: int, content: Content | None) -> Script:
    said, place = described(content), f"option {index + 1}"
    form = forms.bare if said is None else forms.described
    if form is None:
        raise InvalidQuestion(
            f"this model {'needs a' if said is None else 'reads no'} description of {place}"
        )
    values: dict[str, Script] = {
        "name": (Said(name),),
        "description": (Said(said or ""),),
        "index": (Told(str(index)),),
    }
    return filled(form, values)


def _turns(state: Any) -> list[tuple[str, str]] | None:
    """(role, content) of each turn, or None when this is no conversation."""
    turns = [_turn(one) for one in state] if isinstance(state, list) else []
    known = [turn for turn in turns if turn is not None]
    return known if known and len(known) == len(turns) else None


def _turn(value: Any) -> tuple[str, str] | None:
    role, said = (value.get("role"), value.get("content")) if isinstance(value, dict) else (None, None)
    return (role, said) if isinstance(role, str) and isinstance(said, str) else None


def _numbered(value: Any, least: int | None) -> Any:
    """Lists of `least` items or more with an `_index` in each item."""
    if least is None:
        return value
    if isinstance(value, dict):
        return {key: _numbered(item, least) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items = [_numbered(item, least) for item in value]
    if len(items) < least:
        return items
    return [
        {"_index": at, **item} if isinstance(item, dict) else {"_index": at, "value": item}
        for at, item in enumerate(items)
    ]
