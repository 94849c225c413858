"""Labels are read at tokens that really follow the prompt, and numbers agree with plain arithmetic."""

from __future__ import annotations

import math
from string import ascii_uppercase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidQuestion
from coolhead.questions import Choice, Noul, Score
from coolhead_worker.engine.readout import Ending, Labels, choose, read
from tests.engine.vocabulary import SmallVocabulary

CHAT = Ending("assistant\n", "")
BASE = Ending("\n\nAnswer:", " ")
PAIRS = [a + b for a in ascii_uppercase for b in ascii_uppercase]


def choice(*names: str) -> Choice:
    return Choice(criteria=dict.fromkeys(names))


def labels(*ids: int) -> Labels:
    return Labels("letters", tuple(str(i) for i in ids), ids, spaced=False)


@given(
    st.lists(st.floats(-80, 80, width=32), min_size=4, max_size=40),
    st.sets(st.integers(0, 3), min_size=2),
)
def test_a_row_reads_as_plain_arithmetic_says(row: list[float], chosen: set[int]) -> None:
    ids = sorted(chosen)
    peak = max(row)
    weight = [math.exp(value - peak) for value in row]
    inside = math.fsum(weight[i] for i in ids)
    result = read(np.array(row, dtype=np.float32), labels(*ids))
    if inside > 0:
        top = max(row[i] for i in ids)
        spread = math.log(math.fsum(math.exp(row[i] - top) for i in ids))
        assert result.logits == pytest.approx([row[i] - top - spread for i in ids], abs=1e-9)
        assert result.mass == pytest.approx(inside / math.fsum(weight), abs=1e-12)
    assert result.logits.dtype == np.float64
    assert math.fsum(np.exp(result.logits)) == pytest.approx(1.0, abs=1e-12)
    assert 0.0 <= result.mass <= 1.0


@given(st.lists(st.floats(-50, 50), min_size=5, max_size=5), st.floats(-1000, 1000))
def test_a_constant_added_to_all_logits_changes_nothing(row: list[float], shift: float) -> None:
    one, other = (read(np.array(row) + add, labels(1, 3)) for add in (0.0, shift))
    assert one.logits == pytest.approx(other.logits, abs=1e-9)
    assert one.mass == pytest.approx(other.mass, abs=1e-9)


def test_the_only_labels_of_a_vocabulary_hold_all_its_mass() -> None:
    assert read(np.array([1.0, 2.0]), labels(0, 1)).mass == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("question", "pieces", "kind", "marks"),
    [
        (choice("Billing", "Sales"), ("Bill", "Sales"), "names", ("Billing", "Sales")),
        (choice("Bill me", "Bill them"), ("Bill",), "letters", ("A", "B")),
        (choice("same", "sane"), (), "letters", ("A", "B")),
        (choice("A", "B"), (), "names", ("A", "B")),
        (Noul(instructions="?"), ("Yes", "No"), "names", ("Yes", "No")),
        (Score(criteria=("a", "b", "c")), (), "digits", ("0", "1", "2")),
    ],
)
def test_the_readout_fits_question_and_vocabulary(question, pieces, kind, marks) -> None:
    chosen = choose(question, SmallVocabulary(*pieces), CHAT)
    assert (chosen.kind, chosen.marks) == (kind, marks)


def test_a_name_that_merges_with_the_end_of_the_prompt_is_not_read_as_a_name() -> None:
    vocabulary = SmallVocabulary("\nYes")
    assert choose(choice("Yes", "Other"), vocabulary, CHAT).kind == "letters"


def test_digits_that_are_split_from_the_space_are_read_after_a_spaced_opening() -> None:
    chosen = choose(Score(criteria=("a", "b")), SmallVocabulary(), BASE)
    assert (chosen.kind, chosen.spaced, chosen.ids) == ("digits", True, (ord("0"), ord("1")))


def test_names_with_the_space_inside_their_token_need_no_spaced_opening() -> None:
    vocabulary = SmallVocabulary(" Yes", " No")
    chosen = choose(Noul(instructions="?"), vocabulary, BASE)
    assert (chosen.spaced, chosen.ids) == (False, (vocabulary.id_of(" Yes"), vocabulary.id_of(" No")))


def test_a_bare_space_never_stands_for_an_option() -> None:
    chosen = choose(choice("24h", "Other"), SmallVocabulary(" Other"), BASE)
    assert ord(" ") not in chosen.ids


def test_more_than_26_options_that_collide_get_codes() -> None:
    names = [f"queue {number}" for number in range(27)]
    chosen = choose(choice(*names), SmallVocabulary(*PAIRS), CHAT)
    assert (chosen.kind, chosen.marks[:2], len(set(chosen.ids))) == ("codes", ("AA", "AB"), 27)


def test_255_options_get_255_different_codes() -> None:
    chosen = choose(choice(*(f"x{number}" for number in range(255))), SmallVocabulary(*PAIRS), CHAT)
    assert len(set(chosen.ids)) == len(set(chosen.marks)) == 255


def test_codes_skip_what_is_not_one_token() -> None:
    vocabulary = SmallVocabulary(*PAIRS[::2])
    chosen = choose(choice(*(f"x{number}" for number in range(255))), vocabulary, CHAT)
    assert set(chosen.marks) <= set(PAIRS[::2])


def test_a_vocabulary_without_enough_codes_refuses() -> None:
    with pytest.raises(InvalidQuestion, match="fewer options"):
        choose(choice(*(f"x{number}" for number in range(255))), SmallVocabulary(), CHAT)


@given(st.lists(st.text("abcXYZ 01\n", min_size=1, max_size=6), min_size=2, max_size=40, unique=True))
def test_every_label_token_follows_the_real_end_of_the_prompt(names: list[str]) -> None:
    options = [name for name in names if name.strip()]
    if len(options) < 2:
        return
    vocabulary = SmallVocabulary("ab", "XY", "\n\n", " a", " X", *PAIRS)
    for ending in (CHAT, BASE):
        chosen = choose(choice(*options), vocabulary, ending)
        before = vocabulary.tokens(ending.tail + (ending.lead if chosen.spaced else ""))
        assert len(set(chosen.ids)) == len(options)
        for mark, token in zip(chosen.marks, chosen.ids, strict=True):
            whole = vocabulary.tokens(ending.tail + ending.lead + mark)
            assert whole[: len(before) + 1] == [*before, token]
