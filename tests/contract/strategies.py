"""Arbitrary valid questions, policies, jobs and decisions."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from coolhead.answers import Decision, Method, Provenance, Status, Timing, Usage, answer_of
from coolhead.job import Job
from coolhead.policy import Calibration, Debias, Escalation, Grey, Lane, LowMass, Policy, Thresholds, Tier
from coolhead.questions import Questions

#: Any Unicode but NUL and lone surrogates.
characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


def speaks(word: str) -> bool:
    """Not blank, and not the escape of NUL spelt out, which has a test of its own."""
    return bool(word.strip()) and "\\u0000" not in word


words = st.text(characters, min_size=1, max_size=12).filter(speaks)

finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, values, min_size=1, max_size=3)
content = words | objects | st.lists(values, min_size=1, max_size=3)
described = st.none() | content

nouls = st.fixed_dictionaries(
    {"type": st.just("noul"), "instructions": words},
    optional={
        "criteria": st.none() | st.fixed_dictionaries({}, optional={"true": described, "false": described})
    },
)
choices = st.fixed_dictionaries(
    {
        "type": st.just("choice"),
        "criteria": st.dictionaries(words, described, min_size=2, max_size=6)
        | st.lists(words, min_size=2, max_size=6, unique=True),
    },
    optional={"instructions": described},
)
scores = st.fixed_dictionaries(
    {"type": st.just("score"), "criteria": st.lists(content, min_size=2, max_size=10)},
    optional={"instructions": described},
)
question = nouls | choices | scores
question_maps = st.dictionaries(words, question, min_size=1, max_size=4)
questions = question_maps.map(Questions.parse)

share = st.floats(0.0, 1.0)


@st.composite
def thresholds(draw: st.DrawFn) -> dict[str, float]:
    """In wire form, any subset of the fields."""
    below, at, above = sorted(draw(st.lists(share, min_size=3, max_size=3)))
    # These three are ordered, so they come together or not at all.
    ordered = {"accept_below": below, "verdict_at": at, "accept_above": above}
    free = draw(st.fixed_dictionaries({}, optional={"accept_top": share, "min_mass": share}))
    return free | (ordered if draw(st.booleans()) else {})


policy_maps = st.fixed_dictionaries(
    {},
    optional={
        "thresholds": thresholds(),
        "per_question": st.dictionaries(words, thresholds(), max_size=2),
        "escalation": st.sampled_from([each.value for each in Escalation]),
        "on_low_mass": st.sampled_from([each.value for each in LowMass]),
        "calibration": st.sampled_from([each.value for each in Calibration]),
        "debias": st.sampled_from([each.value for each in Debias]),
        "near_tie": share,
    },
)
policies = policy_maps.map(Policy.parse)

ids = st.text("abcXYZ019-_", min_size=1, max_size=128)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that can be made."""
    asked = draw(st.none() | questions)
    return Job.make(
        draw(content),
        questions=asked,
        task=draw(words) if asked is None else draw(st.none() | words),
        policy=draw(st.none() | policies),
        lane=draw(st.sampled_from(list(Lane))),
        deadline_s=draw(st.none() | st.floats(0.001, 1e9)),
        job_id=draw(st.none() | ids),
    )


provenances = st.fixed_dictionaries(
    {
        "tier": st.sampled_from(Tier),
        "escalated": st.none() | st.sampled_from(Grey),
        "flipped": st.booleans(),
        "status": st.sampled_from(Status),
        "method": st.sampled_from(Method),
        "fit": st.none() | words,
        "model": words,
        "plan": words,
        "readout": words,
        "mass": st.none() | share,
        "debias": st.sampled_from(Debias),
        "deep_unavailable": st.booleans(),
    }
).map(lambda fields: Provenance(**fields))


def weights(count: int) -> st.SearchStrategy[list[float]]:
    """What `answer_of` takes: not negative, not all 0."""
    return st.lists(st.floats(0.0, 1e6), min_size=count, max_size=count).filter(lambda each: sum(each) > 0)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any decision a node can send."""
    asked = draw(questions)
    answers: dict[str, Any] = {
        name: answer_of(each, draw(weights(len(each.labels))), Thresholds(), draw(provenances))
        for name, each in asked.items()
    }
    return Decision(
        model=draw(words),
        answers=answers,
        usage=Usage(input_tokens=draw(st.integers(0, 10**6))),
        job_id=draw(ids),
        task=draw(st.none() | words),
        node=draw(words),
        timing=Timing(
            wait_s=draw(st.floats(0, 1e6)), fast_s=draw(st.floats(0, 1e3)), deep_s=draw(st.floats(0, 1e3))
        ),
        attempts=draw(st.integers(1, 9)),
        defers=draw(st.integers(0, 9)),
    )
