"""Task files: what they hold, and what is wrong with a bad one, by place."""

from __future__ import annotations

from pathlib import Path

import pytest

from coolhead.errors import InvalidTask, UnknownTask
from coolhead.task import Task, TaskBook, TextPlan

GOOD = """
name = "support"
description = "Route a ticket"
[questions.refund]
type = "noul"
instructions = "Money back?"
[questions.urgency]
type = "score"
criteria = ["low", "high"]
[policy.thresholds]
verdict_at = 0.9
[policy.per_question.refund]
verdict_at = 0.5
[labels.urgency]
first = 1
"""


def test_a_task_has_questions_policy_and_labels() -> None:
    task = Task.parse(GOOD)
    assert (task.name, list(task.questions.root)) == ("support", ["refund", "urgency"])
    assert task.policy.thresholds.verdict_at == 0.9
    assert task.policy.for_question("refund").verdict_at == 0.5
    assert task.labels["urgency"].first == 1


def test_only_name_and_questions_are_needed() -> None:
    task = Task.parse('name = "t"\n[questions.q]\ntype = "noul"\ninstructions = "x"\n')
    assert (task.description, task.policy.wire(), task.labels) == ("", {}, {})
    assert task.plan is TextPlan.PINNED


@pytest.mark.parametrize("plan", TextPlan)
def test_a_task_says_how_its_questions_are_read(plan: TextPlan) -> None:
    assert Task.parse(f'plan = "{plan}"\n{GOOD}').plan is plan


SHOWN = """
[[examples]]
state = "Pay me back, now!"
answers = { refund = true, urgency = 2 }
[[examples]]
state = "Thanks"
answers = { refund = "no" }
"""


def test_a_task_shows_examples_in_people_s_spelling_of_labels() -> None:
    task = Task.parse(GOOD + SHOWN)
    assert [(one.state, one.answers) for one in task.examples] == [
        ("Pay me back, now!", {"refund": True, "urgency": 2}),
        ("Thanks", {"refund": "no"}),
    ]
    assert [task.label(name, value) for name, value in task.examples[0].answers.items()] == [0, 1]


NOUL = '[questions.q]\ntype = "noul"\ninstructions = "x"\n'
EXAMPLE = '[[examples]]\nstate = "hi"\n[examples.answers]\n'
BAD = [
    ("not TOML", "name = \n", "line 1"),
    ("no name", NOUL, "name"),
    ("a name with a space", 'name = "a b"\n' + NOUL, "name: use"),
    ("a name in capitals", 'name = "Support"\n' + NOUL, "name: use"),
    ("an empty name", 'name = ""\n' + NOUL, "name: use"),
    ("a name that is too long", f'name = "{"x" * 65}"\n' + NOUL, "name: use"),
    ("no questions", 'name = "t"\n', "questions"),
    ("a bad question", 'name = "t"\n[questions.q]\ntype = "choice"\ncriteria = ["a"]\n', "q"),
    ("a bad policy", 'name = "t"\n' + NOUL + "[policy.thresholds]\nverdict_at = nan\n", "verdict_at"),
    ("a plan that does not exist", 'name = "t"\nplan = "trunk"\n' + NOUL, "plan"),
    ("an unknown key", 'name = "t"\ncolour = 1\n' + NOUL, "colour"),
    ("a policy for no question", 'name = "t"\n' + NOUL + "[policy.per_question.x]\nmin_mass = 0.1\n", "'x'"),
    ("an example of no question", 'name = "t"\n' + NOUL + EXAMPLE + "x = true", "'x'"),
    ("an example with no such label", 'name = "t"\n' + NOUL + EXAMPLE + "q = 2", "q: '2'"),
    ("an example without an answer", 'name = "t"\n' + NOUL + EXAMPLE, "examples"),
    ("an example without a state", 'name = "t"\n' + NOUL + EXAMPLE.replace("hi", " ") + "q = 1", "empty"),
    ("an example with NUL", 'name = "t"\n' + NOUL + EXAMPLE.replace("hi", "\\u0000") + "q = 1", "NUL"),
    ("too many examples", 'name = "t"\n' + NOUL + (EXAMPLE + "q = 1\n") * 33, "examples"),
    (
        "examples of isolated questions",
        'name = "t"\nplan = "isolated"\n' + NOUL + EXAMPLE + "q = 1",
        "pinned",
    ),
    ("labels for no question", 'name = "t"\n' + NOUL + "[labels.x]\nfirst = 1\n", "'x'"),
]


@pytest.mark.parametrize(("text", "said"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_task_is_refused_with_its_file_and_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InvalidTask) as caught:
        Task.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTask, match="nonesuch"):
        Task.load(tmp_path / "nonesuch.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    with pytest.raises(InvalidTask, match=r"latin\.toml"):
        Task.load(tmp_path / "latin.toml")


def test_a_book_holds_the_tasks_of_a_folder_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "b.toml").write_text('name = "other"\n' + NOUL)
    (tmp_path / "notes.txt").write_text("not a task")
    book = TaskBook.load(tmp_path)
    assert sorted(book) == ["other", "support"]
    assert book.find("other").name == "other"
    with pytest.raises(UnknownTask, match="known: other, support"):
        book.find("nonesuch")


def test_two_files_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(InvalidTask, match=r"b\.toml: another file already defines 'support'"):
        TaskBook.load(tmp_path)


def test_no_folder_is_an_empty_book() -> None:
    with pytest.raises(UnknownTask, match="known: none"):
        TaskBook.load(None).find("x")


@pytest.mark.parametrize("name", ["support", "guardrail"])
def test_the_tasks_that_come_along_are_valid(name: str) -> None:
    book = TaskBook.load(Path(__file__).parents[2] / "examples" / "tasks")
    assert len(book.find(name).questions) >= 1
