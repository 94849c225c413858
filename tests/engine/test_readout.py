"""Labels are read at tokens that really follow the prompt, and numbers agree with plain arithmetic."""

from __future__ import annotations

import math
from string import ascii_uppercase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidQuestion
from coolhead.questions import Choice, Noul, Question, Score
from coolhead_worker.engine.readout import Ending, Labels, Readout, choose, placed, read
from coolhead_worker.engine.strings import DEEPEST
from tests.engine.vocabulary import SmallVocabulary

STOP = ord("|")
CHAT = Ending("assistant\n", "", STOP)
BASE = Ending("\n\nAnswer:", " ", STOP)
PAIRS = [a + b for a in ascii_uppercase for b in ascii_uppercase]


def choice(*names: str) -> Choice:
    return Choice(criteria=dict.fromkeys(names))


def labels(*ids: int) -> Labels:
    return Labels("letters", tuple(str(i) for i in ids), ids, spaced=False)


def weights(row: list[float]) -> list[float]:
    peak = max(row)
    return [math.exp(value - peak) for value in row]


@given(
    st.lists(st.floats(-80, 80, width=32), min_size=4, max_size=40),
    st.sets(st.integers(0, 3), min_size=2),
)
def test_a_row_reads_as_plain_arithmetic_says(row: list[float], chosen: set[int]) -> None:
    ids = sorted(chosen)
    weight = weights(row)
    inside = math.fsum(weight[i] for i in ids)
    result = read([np.array(row, dtype=np.float32)], labels(*ids))
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
    one, other = (read([np.array(row) + add], labels(1, 3)) for add in (0.0, shift))
    assert one.logits == pytest.approx(other.logits, abs=1e-9)
    assert one.mass == pytest.approx(other.mass, abs=1e-9)


def test_the_only_labels_of_a_vocabulary_hold_all_its_mass() -> None:
    assert read([np.array([1.0, 2.0])], labels(0, 1)).mass == pytest.approx(1.0)


@given(st.lists(st.lists(st.floats(-20, 20), min_size=5, max_size=5), min_size=2, max_size=2))
def test_strings_are_read_token_by_token_from_the_rows_that_follow(rows: list[list[float]]) -> None:
    # 1 or 1-2 or 4: after the prompt, then after token 1, where 0 ends the answer
    said = Labels("strings", ("a", "ab", "c"), (1, 1, 4), spaced=False, paths=((1, 0), (1, 2), (4,)))
    assert said.leaves == ((1,),)
    first, second = ([w / math.fsum(weights(row)) for w in weights(row)] for row in rows)
    likely = [first[1] * second[0], first[1] * second[2], first[4]]
    result = read([np.array(row) for row in rows], said)
    assert result.kind == "strings"
    assert result.mass == pytest.approx(sum(likely), abs=1e-12)
    assert np.exp(result.logits) == pytest.approx([p / sum(likely) for p in likely], abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "order", "expected"),
    [
        ("letters", (2, 0, 1), [-2.0, -3.0, -1.0]),
        ("codes", (2, 0, 1), [-2.0, -3.0, -1.0]),
        ("letters", (0, 1, 2), [-1.0, -2.0, -3.0]),
        ("names", (2, 0, 1), [-1.0, -2.0, -3.0]),
        ("strings", (2, 0, 1), [-1.0, -2.0, -3.0]),
        ("digits", (2, 0, 1), [-1.0, -2.0, -3.0]),
    ],
)
def test_letters_and_codes_stand_for_places_and_the_rest_for_labels(
    kind: str, order: tuple[int, ...], expected: list[float]
) -> None:
    said = placed(
        Readout(np.array([-1.0, -2.0, -3.0]), 0.4, kind), Labels(kind, ("",) * 3, (1, 2, 3), False), order
    )
    assert said.logits.tolist() == expected
    assert (said.mass, said.kind) == (0.4, kind)


@given(st.permutations(range(5)))
def test_what_stood_at_a_place_is_the_label_that_was_shown_there(order: list[int]) -> None:
    said = placed(Readout(np.arange(5.0), 0.4, "letters"), labels(*range(5)), order)
    assert [said.logits[label] for label in order] == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("question", "pieces", "kind", "marks"),
    [
        (choice("Billing", "Sales"), ("Bill", "Sales"), "names", ("Billing", "Sales")),
        (choice("Bill me", "Bill them"), ("Bill",), "strings", ("Bill me", "Bill them")),
        (choice("same", "sane"), (), "strings", ("same", "sane")),
        (choice("x" * DEEPEST + "a", "x" * DEEPEST + "b"), (), "letters", ("A", "B")),
        (choice("A", "B"), (), "names", ("A", "B")),
        (Noul(instructions="?"), ("Yes", "No"), "names", ("Yes", "No")),
        (Noul(instructions="?"), ("\nYes",), "letters", ("A", "B")),
        (Score(criteria=("a", "b", "c")), (), "digits", ("0", "1", "2")),
        (Score(criteria=("a", "b")), ("\n0",), "letters", ("A", "B")),
    ],
)
def test_the_readout_fits_question_and_vocabulary(
    question: Question, pieces: tuple[str, ...], kind: str, marks: tuple[str, ...]
) -> None:
    chosen = choose(question, SmallVocabulary(*pieces), CHAT)
    assert (chosen.kind, chosen.marks) == (kind, marks)
    assert bool(chosen.paths) is (kind == "strings")
    assert chosen.by_place is (kind == "letters")


def test_names_that_collide_are_read_up_to_the_token_in_which_they_differ() -> None:
    chosen = choose(choice("same", "sane", "other"), SmallVocabulary(), CHAT)
    assert chosen.paths == (tuple(map(ord, "sam")), tuple(map(ord, "san")), (ord("o"),))
    assert chosen.leaves == (tuple(map(ord, "sa")),)


@pytest.mark.parametrize(
    ("stop", "kind", "path"), [(STOP, "strings", (ord("a"), STOP)), (None, "letters", None)]
)
def test_a_name_that_begins_another_needs_an_end_of_the_answer(
    stop: int | None, kind: str, path: tuple[int, ...] | None
) -> None:
    chosen = choose(choice("a", "ab"), SmallVocabulary(), Ending("assistant\n", "", stop))
    assert chosen.kind == kind
    assert (chosen.paths[0] if chosen.paths else None) == path


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


def test_more_than_26_options_that_part_late_get_codes() -> None:
    names = [f"a long queue {number}" for number in range(27)]
    chosen = choose(choice(*names), SmallVocabulary(*PAIRS), CHAT)
    assert (chosen.kind, chosen.marks[:2], len(set(chosen.ids))) == ("codes", ("AA", "AB"), 27)
    assert chosen.by_place


@pytest.mark.parametrize(("count", "kind"), [(26, "letters"), (27, "codes")])
def test_letters_reach_as_far_as_the_alphabet(count: int, kind: str) -> None:
    names = [f"a long queue {number}" for number in range(count)]
    assert choose(choice(*names), SmallVocabulary(*PAIRS), CHAT).kind == kind


def test_255_options_get_255_different_codes() -> None:
    chosen = choose(choice(*(f"option {number}" for number in range(255))), SmallVocabulary(*PAIRS), CHAT)
    assert len(set(chosen.ids)) == len(set(chosen.marks)) == 255


def test_codes_skip_what_is_not_one_token() -> None:
    vocabulary = SmallVocabulary(*PAIRS[::2])
    chosen = choose(choice(*(f"option {number}" for number in range(255))), vocabulary, CHAT)
    assert set(chosen.marks) <= set(PAIRS[::2])


def test_a_vocabulary_without_enough_codes_refuses() -> None:
    with pytest.raises(InvalidQuestion, match="fewer options"):
        choose(choice(*(f"option {number}" for number in range(255))), SmallVocabulary(), CHAT)


@given(st.lists(st.text("abcXYZ 01\n|", min_size=1, max_size=6), min_size=2, max_size=30, unique=True))
def test_every_label_follows_the_real_end_of_the_prompt(names: list[str]) -> None:
    options = [name for name in names if name.strip()]
    if len(options) < 2:
        return
    vocabulary = SmallVocabulary("ab", "XY", "\n\n", " a", " X", *PAIRS)
    for ending in (CHAT, BASE):
        chosen = choose(choice(*options), vocabulary, ending)
        before = vocabulary.tokens(ending.tail + (ending.lead if chosen.spaced else ""))
        paths = chosen.paths or tuple((token,) for token in chosen.ids)
        assert len(set(paths)) == len(options)
        for mark, path in zip(chosen.marks, paths, strict=True):
            whole = [*vocabulary.tokens(ending.tail + ending.lead + mark), STOP]
            assert tuple(whole[: len(before) + len(path)]) == (*before, *path)
