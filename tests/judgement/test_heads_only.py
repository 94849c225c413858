"""A fit of heads alone asks no question by text and says so in its record."""

from __future__ import annotations

import json
from pathlib import Path

from coolhead.answers import Method
from coolhead.policy import Tier
from coolhead.task import Task
from coolhead_worker.engine.fake import FakeEngine
from coolhead_worker.judgement.fit import fit_task

TASK = Task.parse('name = "t"\n[questions.q]\ntype = "noul"\ninstructions = "Is it?"\n')


def test_no_question_is_asked_by_text_and_only_heads_are_tried(tmp_path: Path) -> None:
    rows = [
        {"text": f"state {n}", "q": n % 3 == 0, "split": "fit" if n < 60 else "threshold"} for n in range(90)
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = FakeEngine()
    report = fit_task(TASK, [labels], {Tier.FAST: engine}, tmp_path / "fit", heads_only=True)
    assert all(item.trunk and not item.questions for call in engine.calls for item in call)
    (question,) = report.record.questions
    assert [tried.method for tried in question.candidates] == [Method.HEAD]
    assert (question.plan.value, question.plan_id) == ("trunk", "fake-v1.trunk")
    assert "nothing else was tried" in question.why
