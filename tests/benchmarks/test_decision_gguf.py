"""Metadata is added to a copy of a model file: the tensors stay as they are, bit for bit."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from decision_gguf import TEMPLATE, decision_texts, with_texts
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, StrictUndefined

from coolhead.errors import ModelCorrupt
from tests.bench.tiny_model import raw_pairs, tensor_data, tiny_at
from tests.engine.decision.gguf_file import metadata

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9

texts = st.text(st.characters(codec="utf-8"), max_size=40)
keys = st.text("abcdefghijklmnopqrstuvwxyz._0123456789", min_size=1, max_size=30)
numbers = st.sampled_from(sorted(_FORMATS)).flatmap(lambda kind: st.tuples(st.just(kind), st.integers(0, 1)))
scalars = numbers | st.tuples(st.just(TEXT), texts)
lists = st.lists(st.integers(0, 1), max_size=5).flatmap(
    lambda items: st.tuples(st.sampled_from(sorted(_FORMATS)), st.just(items))
) | st.tuples(st.just(TEXT), st.lists(texts, max_size=5))
values = scalars | lists.map(lambda pair: (ARRAY, pair))


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def scalar(kind: int, value: Any) -> bytes:
    return text(value) if kind == TEXT else struct.pack("<" + _FORMATS[kind], value)


def written(kind: int, value: Any) -> bytes:
    if kind != ARRAY:
        return struct.pack("<I", kind) + scalar(kind, value)
    inner, items = value
    head = struct.pack("<IIQ", ARRAY, inner, len(items))
    return head + b"".join(scalar(inner, one) for one in items)


def gguf(
    pairs: dict[str, tuple[int, Any]], tensors: list[bytes], alignment: int = 32, version: int = 3
) -> bytes:
    """A file by the published layout: head, keys, names and places of tensors, then aligned data."""
    if alignment != 32:
        pairs = pairs | {"general.alignment": (4, alignment)}
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(pairs))
    head += b"".join(text(key) + written(*pair) for key, pair in pairs.items())
    at, data = 0, b""
    for number, tensor in enumerate(tensors):
        head += text(f"t{number}") + struct.pack("<IQIQ", 1, len(tensor), 24, at)
        data += tensor + bytes(-len(tensor) % alignment)
        at = len(data)
    return head + bytes(-len(head) % alignment) + data


@given(
    pairs=st.dictionaries(keys, values, max_size=6),
    tensors=st.lists(st.binary(min_size=1, max_size=90), max_size=4),
    alignment=st.sampled_from([8, 16, 32, 64]),
    version=st.sampled_from([2, 3]),
    added=st.dictionaries(keys.map("new.".__add__), texts, min_size=1, max_size=3),
)
def test_the_copy_is_the_file_that_would_have_been_written_with_the_texts(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: dict[str, tuple[int, Any]],
    tensors: list[bytes],
    alignment: int,
    version: int,
    added: dict[str, str],
) -> None:
    folder = tmp_path_factory.mktemp("gguf")
    source, target = folder / "source.gguf", folder / "target.gguf"
    pairs.pop("general.alignment", None)
    source.write_bytes(gguf(pairs, tensors, alignment, version))
    with_texts(source, target, added)
    assert {path.name for path in folder.iterdir()} == {"source.gguf", "target.gguf"}
    assert metadata(target) == metadata(source) | added
    data = b"".join(tensor + bytes(-len(tensor) % alignment) for tensor in tensors)
    made = target.read_bytes()
    assert made.endswith(data)
    # The data begins on a boundary, right behind the head.
    assert (len(made) - len(data)) % alignment == 0
    longer = sum(len(text(key) + written(TEXT, value)) for key, value in added.items())
    assert 0 <= len(made) - len(source.read_bytes()) - longer + alignment - 1 <= 2 * (alignment - 1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_at(tmp_path_factory.mktemp("tiny"))


@pytest.mark.model
def test_a_real_model_keeps_its_tensors_and_keys(tiny: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    with_texts(tiny, copy, decision_texts("llama"))
    assert tensor_data(copy) == tensor_data(tiny)
    before, after = raw_pairs(tiny), raw_pairs(copy)
    assert {key: after[key] for key in before} == before
    assert set(after) - set(before) == {b"llama.decision.type", b"tokenizer.chat_template.systemone"}
    assert metadata(copy)["llama.decision.type"] == "openjev"


@pytest.mark.model
def test_llama_cpp_reads_the_keys_back(tiny: Path, tmp_path: Path) -> None:
    from coolhead_worker.engine.llama import LlamaModel

    with_texts(tiny, tmp_path / "copy.gguf", decision_texts("llama"))
    model = LlamaModel(tmp_path / "copy.gguf")
    try:
        assert model.meta("llama.decision.type") == "openjev"
        assert model.meta("tokenizer.chat_template.systemone") == TEMPLATE
    finally:
        model.close()


def test_a_key_that_is_there_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(gguf({"there": (TEXT, "x")}, [b"data"]))
    with pytest.raises(ModelCorrupt, match="there is there already"):
        with_texts(tmp_path / "a.gguf", tmp_path / "b.gguf", {"there": "y"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.gguf"]


WHOLE = gguf({"a": (TEXT, "some text"), "b": (ARRAY, (4, [1, 2, 3]))}, [b"tensor"])


@pytest.mark.parametrize(
    "data",
    [b"", b"GGUF", b"JUNK" + WHOLE[4:], WHOLE[:4] + struct.pack("<I", 1) + WHOLE[8:], WHOLE[:30], WHOLE[:70],
     struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + text("a") + struct.pack("<I", 99)],
)  # fmt: skip
def test_what_is_no_whole_gguf_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(ModelCorrupt):
        with_texts(tmp_path / "a.gguf", tmp_path / "b.gguf", {"new": "y"})
    assert not (tmp_path / "b.gguf").exists()


def test_an_older_copy_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(WHOLE)
    (tmp_path / "b.gguf").write_bytes(b"old")
    with_texts(tmp_path / "a.gguf", tmp_path / "b.gguf", {"new": "y"})
    assert metadata(tmp_path / "b.gguf")["new"] == "y"


@pytest.mark.parametrize("trimmed", [False, True])
def test_the_template_shows_the_state_first_and_a_letter_for_each_option(trimmed: bool) -> None:
    options = [{"key": "Billing", "description": None}, {"key": "Sales", "description": "new customers"}]
    shown = (
        Environment(undefined=StrictUndefined, trim_blocks=trimmed, lstrip_blocks=trimmed)
        .from_string(TEMPLATE)
        .render(state="card charged twice", instructions="Which queue?", options=options)
    )
    assert shown.index("card charged twice") < shown.index("Which queue?")
    assert "A. Billing\n" in shown
    assert "B. Sales: new customers\n" in shown
    assert shown.endswith("<|im_start|>assistant\n")
