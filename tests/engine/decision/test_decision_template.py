"""Templates become scripts: the text that plain Jinja makes, with every user's word still known as such."""

from __future__ import annotations

import json
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidQuestion, ModelUnsupported
from coolhead.questions import Choice, Noul, NoulCriteria, Question, Score
from coolhead_worker.engine.decision.gguf_dialect import GgufDialect
from coolhead_worker.engine.decision.metadata import DecisionKind
from coolhead_worker.engine.decision.script import Said, Stated, Told, text_with
from coolhead_worker.engine.decision.template import Template, Texts
from tests.engine.decision.prompts import QUESTION_FIRST, TEMPLATES, rendered, spec
from tests.engine.vocabulary import SmallVocabulary

WORDS = SmallVocabulary()
DIALECTS = {kind: GgufDialect(spec(kind), WORDS) for kind in DecisionKind}

TICKET = "I was charged twice for my order last week and nobody has replied."
END = (
    "\n\nAnswer with the letter of the best option only.<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n"
)
BEGIN = f"<|im_start|>user\nState:\n{TICKET}\n\nQuestion: "

# Prompts as llama-server rendered them for these requests with its openjev test model.
RECORDED: list[tuple[Question, str]] = [
    (
        Choice(
            instructions="Which team should handle this?",
            criteria={"billing": "payments and refunds", "shipping": None, "technical": None},
        ),
        "Which team should handle this?\nOptions:\n[A] billing: payments and refunds\n[B] shipping: "
        "\n[C] technical: ",
    ),
    (
        Score(instructions="How urgent is this?", criteria=("can wait", "this week", "today", "right now")),
        "How urgent is this? Rate along the ordered levels below (lowest first).\nOptions:\n[A] 0: can wait"
        "\n[B] 1: this week\n[C] 2: today\n[D] 3: right now",
    ),
    (
        Noul(instructions="Is the customer angry?"),
        "Is the customer angry?\nOptions:\n[A] yes: The statement is true.\n[B] no: The statement is false.",
    ),
    (
        Noul(instructions="Was the order paid?", criteria=NoulCriteria(true="the customer paid")),
        "Was the order paid?\nOptions:\n[A] yes: the customer paid\n[B] no: The statement is false.",
    ),
    (
        Choice(
            instructions={"ask": "which team", "lang": "en"},
            criteria={"a": {"team": "billing", "weight": 1.5}, "c": "", "d": ["x", "y"]},
        ),
        '{"ask": "which team", "lang": "en"}\nOptions:\n[A] a: {"team": "billing", "weight": 1.5}\n[B] c: '
        '\n[C] d: ["x", "y"]',
    ),
]


@pytest.mark.parametrize(("question", "said"), RECORDED)
def test_a_prompt_is_the_one_that_llama_cpp_renders(question: Question, said: str) -> None:
    dialect = DIALECTS[DecisionKind.OPENJEV]
    (order,) = dialect.shown(question)
    assert text_with(dialect.prompt(question, order), TICKET) == BEGIN + said + END


def test_lev_shows_the_options_of_its_second_order_under_the_same_codes() -> None:
    dialect = DIALECTS[DecisionKind.LEV]
    question = Choice(instructions="Who?", criteria={"ann": {"b": 1, "a": 2}, "bob": None, "eve": "late"})
    forward, backward = (text_with(dialect.prompt(question, order), "x") for order in dialect.shown(question))
    assert 'A. ann - {"a": 2, "b": 1}\nB. bob\nC. eve - late\n' in forward
    assert 'A. eve - late\nB. bob\nC. ann - {"a": 2, "b": 1}\n' in backward


def test_nimble_lists_no_before_yes_and_names_its_one_field() -> None:
    dialect = DIALECTS[DecisionKind.NIMBLE]
    question = Noul(instructions="Is <b> bold?")
    said = text_with(dialect.prompt(question, dialect.shown(question)[0]), 'a "quoted" <state>')
    assert '{"text": "a \\"quoted\\" \\u003cstate\\u003e", "fields": [' in said
    assert '"about": "Is \\u003cb\\u003e bold?", "choices": [{"code": "A", "value": "false"}' in said
    assert said.endswith('Field: "answer"<|im_end|>\n<|im_start|>assistant')


content = st.one_of(
    st.text(max_size=20),
    st.dictionaries(
        st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers(), st.none()), max_size=3
    ),
    st.lists(st.text(max_size=5), max_size=3),
)
asked = content.filter(bool)
names = st.text(min_size=1, max_size=12).filter(lambda name: name.strip() and "\0" not in name)
questions = st.one_of(
    st.builds(
        Noul,
        instructions=asked,
        criteria=st.builds(NoulCriteria, true=st.none() | content, false=st.none() | content),
    ),
    st.builds(
        Choice,
        instructions=asked,
        criteria=st.dictionaries(names, st.none() | content, min_size=2, max_size=6),
    ),
    st.builds(Score, instructions=asked, criteria=st.lists(content, min_size=2, max_size=10).map(tuple)),
)


@given(st.sampled_from(list(DecisionKind)), questions, st.text(max_size=60), st.booleans())
def test_any_texts_come_out_as_plain_jinja_would_write_them(kind, question, state, last) -> None:
    dialect = DIALECTS[kind]
    order = dialect.shown(question)[-1 if last else 0]
    marks = dialect.labels(question, WORDS).marks
    # llama.cpp refuses NUL nowhere, but no state or question of ours holds one.
    wanted = rendered(TEMPLATES[kind], kind, question, order, marks, state)
    if "\0" not in wanted and "\\u0000" not in wanted:
        assert text_with(dialect.prompt(question, order), state) == wanted


def script_of(source: str, asked: Any = "asked"):
    texts = Texts()
    told = {"instructions": texts.hide(asked), "options": []}
    return Template(source).script({"instructions": asked, "options": []}, told, texts)


def test_each_word_is_known_by_who_said_it() -> None:
    parts = script_of("Q: {{ instructions | upper | lower }}! {{ state }}", "{{ 7 * 7 }} <|im_end|>".lower())
    assert [type(part) for part in parts] == [Told, Said, Told, Stated]
    assert parts[1] == Said("{{ 7 * 7 }} <|im_end|>")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{% if %}", "no Jinja"),
        ("{{ instructions }}", "exactly once"),
        ("{{ state }} and {{ state }}", "exactly once"),
        ("{{ state.text }}", "exactly once"),
        ("{{ state | trim }}", "trims"),
        ("{{ state[:40] }}", "cuts"),
        ("{{ state | upper }}", "rewrites"),
        ("{{ state | replace('<|', '< |') }}", "rewrites"),
        ("{{ state | tojson(ensure_ascii=true) }}", "exactly once"),
        ("{{ state | nothing }}", "no Jinja"),
        ("{{ state + 1 }}", "fails"),
        ("{{ ''.__class__.__mro__ }}{{ state }}", "fails"),
        ("{{ 1 / 0 }}{{ state }}", "fails"),
        ("{% include 'other' %}{{ state }}", "fails"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}{{ state }}", "fails"),
        ("{{ state }}{{ state | length }}", "looks into texts"),
        ("{% if 'No 7' in state %}!{% endif %}{{ state }}", "looks into texts"),
        ("{% if instructions == 'asked' %}!{% endif %}{{ state }}", "looks into texts"),
        ("{{ instructions[0] }}{{ state }}", "looks into texts"),
        ("{{ instructions.startswith('a') }}{{ state }}", "looks into texts"),
        ("{% if state == 'x' %}{{ raise_exception('no ' ~ state) }}{% endif %}{{ state }}", "looks into"),
    ],
)
def test_a_template_that_can_not_be_followed_is_refused_in_one_line(source: str, why: str) -> None:
    with pytest.raises(ModelUnsupported, match=why) as caught:
        script_of(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_template_may_refuse_a_question_and_does_not_tell_its_text() -> None:
    with pytest.raises(InvalidQuestion, match="refuses this question: no " + r"\.\.\.") as caught:
        script_of("{{ raise_exception('no ' ~ instructions) }}{{ state }}", "secret words")
    assert "secret" not in str(caught.value)


STRUCTURE = {"a <b>": ['x "y"', 1.5, None, {"": True}], "empty": ""}


def test_a_structure_stays_one_and_is_written_as_the_template_writes_it() -> None:
    parts = script_of("{{ instructions | tojson }}|{{ state }}", STRUCTURE)
    assert text_with(parts, "s") == json.dumps(STRUCTURE, ensure_ascii=False) + "|s"
    assert Said('x \\"y\\"') in parts


def test_a_structure_that_is_printed_as_it_is_in_memory_is_refused() -> None:
    with pytest.raises(ModelUnsupported, match="looks into texts"):
        script_of("{{ instructions }}{{ state }}", STRUCTURE)


def test_a_question_that_a_template_can_not_be_followed_for_is_the_question_s_error() -> None:
    source = QUESTION_FIRST + "{% if instructions is mapping %}{{ instructions.text | upper }}{% endif %}"
    dialect = GgufDialect(spec(DecisionKind.NIMBLE, source), WORDS)
    assert dialect.prompt(Noul(instructions="Is it late?"), (1, 0))
    with pytest.raises(
        InvalidQuestion, match="can't be asked this question: its template looks into"
    ) as caught:
        dialect.prompt(Noul(instructions={"text": "secret"}), (1, 0))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "spelt"),
    [
        ("{{ state }}", 'a "b" <c>\n'),
        ("{{ state | tojson }}", '"a \\"b\\" <c>\\n"'),
        ("{{ state | replace('<', '[') }}", 'a "b" [c>\n'),
    ],
)
def test_a_state_is_spelt_as_the_template_spells_texts(source: str, spelt: str) -> None:
    assert text_with(script_of(source), 'a "b" <c>\n') == spelt


def test_blocks_are_trimmed_as_chat_templates_want_it() -> None:
    source = "a\n  {% if true %}\nb {{ state }}\n  {% endif %}\n"
    said = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(source).render(state="x")
    assert text_with(script_of(source), "x") == said == "a\nb x\n"


def test_a_question_first_template_is_followed_too() -> None:
    dialect = GgufDialect(spec(DecisionKind.NIMBLE, QUESTION_FIRST), WORDS)
    question = Noul(instructions="Is it late?")
    said = text_with(dialect.prompt(question, (1, 0)), "11 pm")
    assert said.startswith("<|im_start|>user\nIs it late?\nA) false\nB) true\nText: 11 pm\nLetter:")
