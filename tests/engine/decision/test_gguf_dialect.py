"""How each kind of decision model is asked, read and calibrated."""

from __future__ import annotations

import numpy as np
import pytest

from coolhead.errors import InvalidQuestion, ModelUnsupported
from coolhead.policy import Debias
from coolhead.questions import Choice, Noul, Score
from coolhead_worker.engine.decision.gguf_dialect import GgufDialect
from coolhead_worker.engine.decision.metadata import DecisionKind
from coolhead_worker.engine.dialect import Dialect
from coolhead_worker.engine.protocol import PinnedSet, PlanKind, Readout
from tests.engine.decision.prompts import LETTERS, TEMPLATES, spec
from tests.engine.vocabulary import SmallVocabulary

PLAN = PlanKind.ISOLATED
WORDS = SmallVocabulary("AA", "AC", "ZZ", "zz")
NOUL = Noul(instructions="Is it spam?")
SCORE = Score(instructions="How bad?", criteria=("fine", "bad", "awful"))


def choice(count: int) -> Choice:
    return Choice(instructions="Which?", criteria={f"o{at}": None for at in range(count)})


def dialect(kind: DecisionKind, **temperatures: float) -> GgufDialect:
    return GgufDialect(spec(kind, **temperatures), WORDS)


def test_a_decision_dialect_fits_the_seam_of_the_engine() -> None:
    fitting: Dialect = dialect(DecisionKind.LEV)
    assert (fitting.name, fitting.pins) == ("lev", False)


CODES = ("A", "B", "C", "D", "E", "F", "G", "H", "I")


@pytest.mark.parametrize(
    ("kind", "question", "marks", "orders"),
    [
        (DecisionKind.OPENJEV, NOUL, CODES[:2], ((0, 1),)),
        (DecisionKind.OPENJEV, choice(3), CODES[:3], ((0, 1, 2),)),
        (DecisionKind.OPENJEV, SCORE, CODES[:3], ((0, 1, 2),)),
        (DecisionKind.LEV, NOUL, CODES, ((1, 0),)),
        (DecisionKind.LEV, choice(3), CODES[:3], ((0, 1, 2), (2, 1, 0))),
        (DecisionKind.LEV, SCORE, CODES[:3], ((0, 1, 2),)),
        (DecisionKind.NIMBLE, NOUL, CODES[:2], ((1, 0),)),
        (DecisionKind.NIMBLE, choice(3), CODES[:3], ((0, 1, 2),)),
        (DecisionKind.NIMBLE, SCORE, CODES[:3], ((0, 1, 2),)),
    ],
)
def test_each_kind_reads_its_own_letters_in_its_own_orders(kind, question, marks, orders) -> None:
    asked = dialect(kind)
    labels = asked.labels(question, WORDS)
    assert (labels.kind, labels.marks) == ("letters", marks)
    assert labels.ids == tuple(map(ord, marks))
    assert asked.shown(question) == orders


def test_openjev_goes_on_with_small_letters_and_ends_at_52() -> None:
    asked = dialect(DecisionKind.OPENJEV)
    assert "".join(asked.labels(choice(52), WORDS).marks) == LETTERS
    with pytest.raises(InvalidQuestion, match="at most 52 options, not 53"):
        asked.labels(choice(53), WORDS)


@pytest.mark.parametrize("kind", [DecisionKind.LEV, DecisionKind.NIMBLE])
def test_codes_go_on_with_pairs_that_are_one_token(kind: DecisionKind) -> None:
    labels = dialect(kind).labels(choice(29), WORDS)
    assert labels.marks == (*LETTERS[:26], "AA", "AC", "ZZ")
    assert labels.kind == "codes"
    with pytest.raises(InvalidQuestion, match="at most 29 options, not 30"):
        dialect(kind).labels(choice(30), WORDS)


def test_a_vocabulary_without_a_letter_is_refused() -> None:
    class Torn(SmallVocabulary):
        def tokens(self, text: str, *, control: bool = False) -> list[int]:
            return [1, 2] if text == "q" else super().tokens(text, control=control)

    with pytest.raises(ModelUnsupported, match="'q' is not one token"):
        GgufDialect(spec(DecisionKind.OPENJEV), Torn())


@pytest.mark.parametrize("kind", list(DecisionKind))
@pytest.mark.parametrize("instructions", [None, "", {}, []])
def test_a_question_without_instructions_is_refused(kind: DecisionKind, instructions) -> None:
    question = Score(instructions=instructions, criteria=("a", "b"))
    with pytest.raises(InvalidQuestion, match="needs instructions"):
        dialect(kind).labels(question, WORDS)


def test_the_digest_changes_with_template_kind_and_temperature() -> None:
    variants = [
        dialect(DecisionKind.LEV),
        dialect(DecisionKind.NIMBLE),
        dialect(DecisionKind.LEV, choice=2.0),
        GgufDialect(spec(DecisionKind.LEV, TEMPLATES[DecisionKind.LEV] + "."), WORDS),
    ]
    assert len({one.digest(PLAN) for one in variants}) == len(variants)
    assert dialect(DecisionKind.LEV).digest(PLAN) == variants[0].digest(PLAN)
    assert all(len(one.digest(PLAN)) == 8 for one in variants)
    assert variants[0].digest(PlanKind.TRUNK) != variants[0].digest(PLAN)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (DecisionKind.LEV, '{"a": {"x": 1, "y": 2}, "b": 3}'),
        (DecisionKind.OPENJEV, '{"b": 3, "a": {"y": 2, "x": 1}}'),
    ],
)
def test_a_structured_state_is_written_as_the_author_writes_it(kind: DecisionKind, wanted: str) -> None:
    assert dialect(kind).state_text({"b": 3, "a": {"y": 2, "x": 1}}) == wanted
    assert dialect(kind).state_text("as it is") == "as it is"


@pytest.mark.parametrize("level", list(Debias))
def test_the_author_s_orders_are_read_whatever_debiasing_is_wanted(level: Debias) -> None:
    assert dialect(DecisionKind.LEV).orders(choice(3), level) == ((0, 1, 2), (2, 1, 0))
    assert dialect(DecisionKind.OPENJEV).orders(choice(3), level) == ((0, 1, 2),)


@pytest.mark.parametrize(
    ("kind", "question", "debias"),
    [
        (DecisionKind.LEV, choice(3), Debias.REVERSED),
        (DecisionKind.LEV, NOUL, Debias.RAW),
        (DecisionKind.OPENJEV, choice(3), Debias.RAW),
        (DecisionKind.NIMBLE, NOUL, Debias.RAW),
    ],
)
def test_a_readout_has_a_log_probability_for_each_label_and_the_mean_mass(kind, question, debias) -> None:
    asked = dialect(kind, choice=2.5)
    labels = asked.labels(question, WORDS)
    row = np.log(np.arange(1.0, len(labels.ids) + 1))
    heard = [
        (order, Readout(row, mass, "letters"))
        for order, mass in zip(asked.shown(question), (0.25, 0.75), strict=False)
    ]
    folded = asked.fold(question, labels, heard)
    assert folded.logits.shape == (len(question.labels),)
    assert np.exp(folded.logits).sum() == pytest.approx(1.0)
    assert folded.mass == (0.5 if debias is Debias.REVERSED else 0.25)
    assert (folded.kind, folded.debias) == ("letters", debias)


def test_a_prompt_with_the_questions_before_the_state_is_refused_in_one_line() -> None:
    spoken = dialect(DecisionKind.OPENJEV)
    with pytest.raises(ModelUnsupported, match="asked isolated"):
        spoken.pinned_head(PinnedSet({}), {})
    with pytest.raises(ModelUnsupported, match="asked isolated"):
        spoken.pinned_branch("q", spoken.labels(NOUL, WORDS))
