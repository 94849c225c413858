"""Label files: what a row may say, and what is refused."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import InvalidLabels
from coolhead.task import Task
from coolhead_worker.judgement.labels import FIT_SHARE, Split, load_labels
from tests.judgement.synthetic import TASK, row, write_rows


def load_one(tmp_path, line: object, task: Task = TASK):
    return load_labels([write_rows(tmp_path / "l.jsonl", [line])], task).rows[0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"refund": True}, {"refund": 0}),  # yes is index 0
        ({"refund": False}, {"refund": 1}),
        ({"refund": "yes"}, {"refund": 0}),
        ({"refund": "no"}, {"refund": 1}),
        ({"refund": 1}, {"refund": 0}),
        ({"refund": 0}, {"refund": 1}),
        ({"queue": "sales"}, {"queue": 2}),
        ({"urgency": 1}, {"urgency": 0}),  # the task counts levels from 1
        ({"urgency": 3}, {"urgency": 2}),
        ({"urgency": "middle"}, {"urgency": 1}),
        ({"labels": {"queue": "billing", "urgency": 2}}, {"queue": 0, "urgency": 1}),
        ({"labels": {"queue": "billing"}, "refund": "no"}, {"queue": 0, "refund": 1}),
        ({"queue": "sales", "refund": None}, {"queue": 2}),
        ({"queue": "sales", "language": "ko", "author": 7}, {"queue": 2}),  # other fields are the user's
    ],
)
def test_labels_are_read_as_people_write_them(tmp_path, given, expected):
    assert load_one(tmp_path, {"text": "a", **given}).labels == expected


def test_levels_count_from_0_unless_the_task_says_otherwise(tmp_path):
    plain = Task.build({"name": "t", "questions": {"u": {"type": "score", "criteria": ["a", "b"]}}})
    assert load_one(tmp_path, {"text": "x", "u": 0}, plain).labels == {"u": 0}


def test_a_state_may_be_an_object(tmp_path):
    assert load_one(tmp_path, {"state": {"a": [1, "é"]}, "refund": 1}).state == '{"a":[1,"é"]}'


def test_a_question_named_like_a_field_of_the_row_is_labelled_under_labels(tmp_path):
    task = Task.build({"name": "t", "questions": {"text": {"type": "noul", "instructions": "?"}}})
    assert load_one(tmp_path, {"text": "yes", "labels": {"text": "no"}}, task).labels == {"text": 1}


BAD = [
    ("not json", "not a JSON object"),
    ("[1]", "not a JSON object"),
    ('"text"', "not a JSON object"),
    (b"\xff\xfe{}", "not a JSON object"),
    ({"refund": True}, "either `text` or `state`"),
    ({"text": "a", "state": "a", "refund": True}, "either `text` or `state`"),
    ({"text": 7, "refund": True}, "`text` must be text"),
    ({"text": "  ", "refund": True}, "empty"),
    ({"text": "a\0b", "refund": True}, "NUL"),
    ({"state": 7, "refund": True}, "must be text, an object or a list"),
    ({"text": "a"}, "no label for any question"),
    ({"text": "a", "refund": None}, "no label for any question"),
    ({"text": "a", "labels": 3}, "`labels` must be an object"),
    ({"text": "a", "labels": {"refnud": True}}, "no question 'refnud'"),
    ({"text": "a", "refund": True, "labels": {"refund": True}}, "stands at the top and under"),
    ({"text": "a", "refund": "maybe"}, "refund: 'maybe' is not true, false"),
    ({"text": "a", "refund": 2}, "refund: '2' is not true, false"),
    ({"text": "a", "refund": 0.5}, "refund: '0.5'"),
    ({"text": "a", "refund": [True]}, "refund:"),
    ({"text": "a", "queue": "Billing"}, "queue: 'Billing' is not an option"),
    ({"text": "a", "queue": 0}, "queue: '0' is not an option"),
    ({"text": "a", "urgency": 0}, "urgency: 0 is not a level from 1 to 3"),
    ({"text": "a", "urgency": 4}, "urgency: 4 is not a level from 1 to 3"),
    ({"text": "a", "urgency": True}, "urgency: 'True'"),
    ({"text": "a", "urgency": 2.0}, "urgency: '2.0'"),
    ({"text": "a", "urgency": "hgih"}, "urgency: 'hgih'"),
    ({"text": "a", "refund": True, "split": "test"}, "split 'test' is not one of fit, threshold, held_out"),
    ({"text": "a", "refund": True, "group": ["x"]}, "`group` must be text"),
]


@pytest.mark.parametrize(("line", "rule"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_a_bad_row_is_refused_with_file_row_and_rule(tmp_path, line, rule):
    raw = line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
    path = tmp_path / "tickets.jsonl"
    path.write_bytes(json.dumps(row(0)).encode() + b"\n\n" + raw + b"\n")
    with pytest.raises(InvalidLabels) as caught:
        load_labels([path], TASK)
    assert str(caught.value).startswith("tickets.jsonl:3: ")
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_ambiguous_level_text_asks_for_the_number(tmp_path):
    task = Task.build({"name": "t", "questions": {"u": {"type": "score", "criteria": ["same", "same"]}}})
    with pytest.raises(InvalidLabels, match="use its number"):
        load_one(tmp_path, {"text": "a", "u": "same"}, task)


def test_an_id_used_twice_is_refused_across_files(tmp_path):
    files = [write_rows(tmp_path / name, [row(i, id="t1")]) for i, name in enumerate(("a.jsonl", "b.jsonl"))]
    with pytest.raises(InvalidLabels, match=r"b\.jsonl:1: the id 't1' is used twice"):
        load_labels(files, TASK)


def test_a_missing_or_empty_file_is_refused_without_its_folder(tmp_path):
    with pytest.raises(InvalidLabels, match=r"^gone\.jsonl: No such file"):
        load_labels([tmp_path / "gone.jsonl"], TASK)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InvalidLabels, match="no rows"):
        load_labels([tmp_path / "empty.jsonl"], TASK)


def test_held_out_rows_are_counted_and_left_out(tmp_path):
    rows = [row(i, split="held_out" if i < 4 else "fit") for i in range(10)]
    labels = load_labels([write_rows(tmp_path / "l.jsonl", rows)], TASK)
    assert labels.held_out == 4
    assert len(labels.rows) == 6
    assert labels.files[0].rows == 10


def test_a_file_is_known_by_name_and_sha256(tmp_path):
    path = write_rows(tmp_path / "l.jsonl", [row(0)])
    found = load_labels([path], TASK).files[0]
    assert (found.name, found.sha256) == ("l.jsonl", hashlib.sha256(path.read_bytes()).hexdigest())


def test_unmarked_rows_split_about_60_to_40(tmp_path):
    labels = load_labels([write_rows(tmp_path / "l.jsonl", [row(i) for i in range(600)])], TASK)
    share = sum(one.split is Split.FIT for one in labels.rows) / 600
    assert abs(share - FIT_SHARE) < 0.06  # three standard errors: 3 * sqrt(.6 * .4 / 600)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30, unique=True))
def test_a_rows_split_does_not_depend_on_the_others(tmp_path_factory, places):
    folder = tmp_path_factory.mktemp("labels")
    together = load_labels([write_rows(folder / "l.jsonl", [row(i) for i in places])], TASK)
    alone = load_labels([write_rows(folder / "l.jsonl", [row(places[0])])], TASK)
    assert together.rows[0] == alone.rows[0]


def test_rows_of_a_group_and_equal_texts_share_a_split(tmp_path):
    rows = [row(i, group=i % 7) for i in range(70)] + [row(3), row(3, refund=None)]
    labels = load_labels([write_rows(tmp_path / "l.jsonl", rows)], TASK).rows
    for group in {one.group for one in labels}:
        assert len({one.split for one in labels if one.group == group}) == 1
    assert labels[-1].group == labels[-2].group


def test_a_text_in_two_splits_is_warned_about(tmp_path):
    rows = [row(0, split="fit"), row(0, split="held_out"), row(1, split="fit")]
    warnings = load_labels([write_rows(tmp_path / "l.jsonl", rows)], TASK).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith("1 texts or groups")
