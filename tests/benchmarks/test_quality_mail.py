"""Mails: what of them is kept, and which belong together."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quality_mail import LIMIT, related, shingles, text_of_mail, thread

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
