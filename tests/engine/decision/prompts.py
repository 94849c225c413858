"""Templates in the shape of each kind of decision model, and how plain Jinja renders them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jinja2

from coolhead.questions import Choice, Content, Noul, NoulCriteria, Question, Score
from coolhead_worker.engine.decision.metadata import DecisionKind, DecisionSpec

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _text(name: str) -> str:
    return f"{{{{ {name} if {name} is string else {name} | tojson }}}}"


OPENJEV = (
    "<|im_start|>user\nState:\n" + _text("state") + "\n\nQuestion: " + _text("instructions")
    + "{% if type == 'score' %} Rate along the ordered levels below (lowest first).{% endif %}"
    "{{ '\\nOptions:\\n' }}"
    "{% for o in options %}"
    f"[{{{{ '{LETTERS}'[loop.index0] }}}}] "
    "{% if type == 'noul' %}{{ 'yes' if o.key == 'true' else 'no' }}{% else %}{{ o.key }}{% endif %}: "
    "{% if o.description %}" + _text("o.description")
    + "{% elif type == 'noul' %}The statement is {{ o.key }}.{% endif %}{{ '\\n' }}{% endfor %}"
    "{{ '\\n' }}Answer with the letter of the best option only.<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n{{ '\\n' }}"
)  # fmt: skip

LEV = """\
<|im_start|>system
You read facts and choose.<|im_end|>
<|im_start|>user
# Facts
{{ state if state is string else state | tojson }}

# Asked
{{ instructions if instructions is string else instructions | tojson }}

{% if type == 'noul' %}
0 is no, 8 is yes.
{% for o in options %}
{% if o.description %}
{{ o.key }}: {{ o.description if o.description is string else o.description | tojson }}
{% endif %}
{% endfor %}
{% else %}
{% for o in options %}
{% set said = o.description if o.description is string else o.description | tojson %}
{{ o.label }}. {{ o.key }}{% if o.description %} - {{ said }}{% endif %}

{% endfor %}
{% endif %}
<|im_end|>
<|im_start|>assistant
"""

_JSON = " | tojson | replace('<', '\\\\u003c') | replace('>', '\\\\u003e')"
NIMBLE = (
    "{% set ns = namespace(code='letter') %}"
    "{% for q in questions %}{% if q.options | length > 26 %}{% set ns.code = 'short code' %}{% endif %}"
    "{% endfor %}"
    "<|im_start|>system\nReturn only the {{ ns.code }}.<|im_end|>\n<|im_start|>user\n"
    '{"text": {{ (state if state is string else state | tojson)' + _JSON + ' }}, "fields": ['
    "{% for q in questions %}"
    '{"name": {{ q.id' + _JSON + ' }}, "about": '
    "{{ (q.instructions if q.instructions is string else q.instructions | tojson)" + _JSON
    + ' }}, "choices": ['
    '{% for o in q.options %}{"code": {{ o.label | tojson }}, "value": {{ o.key' + _JSON + " }}"
    '{% if o.description is not none %}, "about": '
    "{{ (o.description if o.description is string else o.description | tojson)" + _JSON + " }}{% endif %}}"
    "{% if not loop.last %}, {% endif %}{% endfor %}]}{% endfor %}]}"
    "\n\nField: {{ id" + _JSON + " }}<|im_end|>\n<|im_start|>assistant\n"
)  # fmt: skip

QUESTION_FIRST = (
    "<|im_start|>user\n" + _text("instructions") + "\n"
    "{% for o in options %}{{ o.label }}) {{ o.key }}\n{% endfor %}"
    "Text: {{ state }}\nLetter:<|im_end|>\n<|im_start|>assistant\n"
)

TEMPLATES = {DecisionKind.OPENJEV: OPENJEV, DecisionKind.LEV: LEV, DecisionKind.NIMBLE: NIMBLE}


def spec(kind: DecisionKind, template: str | None = None, **temperatures: float) -> DecisionSpec:
    named = tuple((name.replace("__", "."), value) for name, value in temperatures.items())
    return DecisionSpec(kind, TEMPLATES[kind] if template is None else template, named)


def rendered(
    template: str,
    kind: DecisionKind,
    question: Question,
    order: Sequence[int],
    marks: Sequence[str],
    state: str,
) -> str:
    """What Jinja itself makes of the raw texts, as llama.cpp would hand them over."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    sort = kind is DecisionKind.LEV
    shown = [_options(question, sort)[index] for index in order]
    if kind is not DecisionKind.OPENJEV:
        shown = [{**option, "label": mark} for option, mark in zip(shown, marks, strict=False)]
    asked = {
        "id": "answer",
        "type": question.type,
        "options": shown,
        "instructions": _raw(question.instructions, sort),
    }
    return environment.from_string(template).render(
        {**asked, "questions": [asked], "state": state, "images": []}
    )


def _options(question: Question, sort: bool) -> list[dict[str, Any]]:
    if isinstance(question, Noul):
        said = question.criteria or NoulCriteria()
        pairs: list[tuple[str, Content | None]] = [("true", said.true), ("false", said.false)]
    elif isinstance(question, Score):
        pairs = [(str(at), level) for at, level in enumerate(question.criteria)]
    else:
        assert isinstance(question, Choice)
        pairs = list(question.criteria.items())
    return [{"key": key, "description": _raw(content, sort)} for key, content in pairs]


def _raw(value: Any, sort: bool) -> Any:
    return json.loads(json.dumps(value, sort_keys=True)) if sort else value
