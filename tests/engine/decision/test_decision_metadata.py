"""Decision metadata of GGUF files: what is read, what is refused, and which temperature counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coolhead.errors import ModelCorrupt, ModelUnsupported
from coolhead.questions import Choice, Noul, Question, Score
from coolhead_worker.engine.decision.metadata import DecisionKind, bucket, decision_spec
from coolhead_worker.engine.llama import LlamaModel
from coolhead_worker.models import DemoModels
from tests.engine.decision.gguf_file import copy_with
from tests.engine.decision.prompts import OPENJEV

KEYS = {"general.architecture": "llama", "tokenizer.chat_template.systemone": "{{ state }}"}


def meta(kind: str | None = "openjev", **more: str):
    said = {} if kind is None else {"llama.decision.type": kind}
    named = {f"llama.decision.temperature.{name.replace('__', '.')}": text for name, text in more.items()}
    return {**KEYS, **said, **named}.get


def question(type_: str, options: int) -> Question:
    if type_ == "noul":
        return Noul(instructions="q")
    if type_ == "score":
        return Score(criteria=tuple(f"l{at}" for at in range(options)))
    return Choice(criteria={f"o{at}": None for at in range(options)})


def test_a_file_without_decision_keys_is_no_decision_model() -> None:
    assert decision_spec(meta(None)) is None


@pytest.mark.parametrize("kind", list(DecisionKind))
def test_causal_letter_kinds_are_read(kind: DecisionKind) -> None:
    read = decision_spec(meta(kind.value, choice="2.5", noul__2="0.5"))
    assert read is not None
    assert (read.kind, read.template) == (kind, "{{ state }}")
    assert read.temperature(question("choice", 3)) == 2.5
    assert read.temperature(question("score", 3)) is None


@pytest.mark.parametrize("kind", ["kev", "laya", "clef", "lfm2-d1", "pplx-decider", "OPENJEV", "", "x" * 500])
def test_other_kinds_are_refused_by_name_with_those_that_are_read(kind: str) -> None:
    with pytest.raises(ModelUnsupported, match="only openjev, lev, nimble") as caught:
        decision_spec(meta(kind))
    assert repr(kind[:40]) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_decision_model_without_its_template_is_refused() -> None:
    keys = {"general.architecture": "llama", "llama.decision.type": "lev"}
    with pytest.raises(ModelUnsupported, match=r"tokenizer\.chat_template\.systemone"):
        decision_spec(keys.get)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "warm", "", "0.0"])
def test_a_temperature_that_is_none_is_corrupt(text: str) -> None:
    with pytest.raises(ModelCorrupt, match=r"llama\.decision\.temperature\.choice\.3_5"):
        decision_spec(meta(choice__3_5=text))


# As the keys are named: the bucket "3_5" is for 3 to 5 options, "11" for 11 and more.
NAMED = {"2": range(2, 3), "3_5": range(3, 6), "6_10": range(6, 11), "11": range(11, 256)}
NAMED_OF_LEV = {"small": range(2, 9), "mid": range(9, 27), "large": range(27, 256)}


@given(st.sampled_from(list(DecisionKind)), st.integers(2, 255))
def test_every_number_of_options_has_one_bucket(kind: DecisionKind, options: int) -> None:
    named = NAMED_OF_LEV if kind is DecisionKind.LEV else NAMED
    assert [name for name, held in named.items() if options in held] == [bucket(kind, options)]


@given(
    st.sampled_from(list(DecisionKind)),
    st.dictionaries(
        st.tuples(st.sampled_from(["choice", "score", "noul"]), st.sampled_from(["", *NAMED, *NAMED_OF_LEV])),
        st.floats(0.01, 100),
    ),
    st.sampled_from(["choice", "score", "noul"]),
    st.integers(2, 10),
)
def test_a_bucket_goes_before_its_type_and_other_types_never_count(kind, given_, type_, options) -> None:
    named = {f"{t}__{b}" if b else t: repr(value) for (t, b), value in given_.items()}
    read = decision_spec(meta(kind.value, **named))
    assert read is not None
    asked = question(type_, options)
    held = bucket(kind, len(asked.labels))
    assert read.temperature(asked) == given_.get((type_, held), given_.get((type_, "")))


@pytest.mark.model
def test_metadata_written_into_a_model_file_is_read_back(demo_models: DemoModels, tmp_path) -> None:
    written = {
        "llama.decision.type": "openjev",
        "llama.decision.temperature.choice": 1.75,
        "llama.decision.temperature.choice.3_5": 2.25,
        "llama.decision.temperature.noul.2": "0.83",
        "tokenizer.chat_template.systemone": OPENJEV,
    }
    path = copy_with(demo_models.fast.path, tmp_path / "decision.gguf", written)
    model = LlamaModel(path)
    try:
        read = decision_spec(model.meta)
        assert model.meta("general.architecture") == "llama"
    finally:
        model.close()
    assert read is not None
    assert (read.kind, read.template) == (DecisionKind.OPENJEV, OPENJEV)
    asked = [question("choice", 2), question("choice", 4), question("noul", 2), question("score", 3)]
    assert [read.temperature(one) for one in asked] == [1.75, 2.25, 0.83, None]
