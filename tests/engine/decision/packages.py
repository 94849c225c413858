"""NoulXP packages for tests: small ones by hand, real ones exported from SmolLM2 by that project's tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.decision.gguf_file import metadata

LISTED: dict[str, Any] = {
    "standard": "noulxp/0.1",
    "profile": "causal-letters",
    "context": {"template": "Context:\n{state}"},
    "question": {
        "head": "\n\nQuestion: {instructions}\nOptions:",
        "option": "\n({label}) {text}",
        "tail": "\nAnswer: (",
    },
    "labels": ["A", "B", "C", "D"],
    "layouts": [{"max_options": 2, "encoding": "joined"}, {"max_options": 4, "encoding": "split-at-label"}],
    "options": {
        "choice": {"described": "{name}: {description}", "bare": "{name}"},
        "score": {"described": "{index}: {description}"},
        "noul": {"false": {"described": "no: {description}", "bare": "no"}, "true": {"bare": "yes"}},
    },
    "instructions": {"fallback": {"noul": "Which fits?"}, "required": True},
}
_TYPE = {
    "layouts": [
        {
            "max_options": 3,
            "labels": ["A", "B", "C"],
            "head": "Q: {instructions}{legend}\n",
            "option": "{label}. {text}",
            "separator": "\n",
            "tail": "\nLetter only.",
        }
    ]
}
TYPED: dict[str, Any] = {
    "standard": "noulxp/0.2",
    "profile": "causal-letters",
    "chat": {"template": "<|im_start|>{system}<|im_end|>{user}<|im_end|>", "system": "Be brief."},
    "context": {"template": "State:\n{state}\n\n"},
    "types": {
        "choice": {**_TYPE, "rotate": "cyclic", "listing": "canonical"},
        "score": _TYPE,
        "noul": {
            "layouts": [
                {
                    "max_options": 2,
                    "labels": ["n", "y"],
                    "head": "{instructions}\nAnswer ",
                    "option": "{label}",
                    "separator": " or ",
                    "tail": ".",
                }
            ],
            "labels": "attached",
            "rotate": "cyclic",
            "listing": ["true", "false"],
        },
    },
    "options": LISTED["options"],
    "state": {"json": "indent-2", "messages": "role-content", "empty": "(empty)"},
}
CALIBRATION: dict[str, Any] = {
    "standard": "noulxp/0.1",
    "temperature": {"choice": 2.0, "noul": 1.5},
    "by_option_count": [
        {"type": "choice", "min": 3, "max": 4, "temperature": 3.0},
        {"type": "choice", "min": 4, "temperature": 4.0},
    ],
}


def write_package(folder: Path, said: Mapping[str, Any] = LISTED, /, **manifest: Any) -> Path:
    """A package with a file of nonsense as weights; `manifest` replaces entries of the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.gguf").write_bytes(b"GGUF nonsense")
    (folder / "prompt.json").write_text(json.dumps(said))
    (folder / "calibration.json").write_text(json.dumps(CALIBRATION))
    whole = {
        "standard": said["standard"],
        "name": "test/letters",
        "profile": "causal-letters",
        "weights": {**entry(folder, "model.gguf"), "format": "gguf"},
        "prompt": entry(folder, "prompt.json"),
        "calibration": entry(folder, "calibration.json"),
        "limits": {"max_tokens": 512, "max_options": 4, "max_levels": 3},
        **manifest,
    }
    (folder / "noulxp.json").write_text(json.dumps(whole))
    return folder


def entry(folder: Path, name: str) -> dict[str, Any]:
    return {"path": name, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()}


def write_tokenizer(model: Path, target: Path) -> None:
    """The `tokenizer.json` of SmolLM2, made from what its GGUF file holds."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    held = metadata(model)
    words, merges = held["tokenizer.ggml.tokens"], held["tokenizer.ggml.merges"]
    vocabulary = {word: at for at, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [w for w, kind in zip(words, held["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in control])
    tokenizer.save(str(target))


def export_listed(model: Path, folder: Path, *, isolated: bool) -> Path:
    """A package as `noulxp export decider` makes it of a checkpoint; the checkpoint stays beside it."""
    from noulxp.export import decider

    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.gguf").symlink_to(model)
    write_tokenizer(model, checkpoint / "tokenizer.json")
    config = {
        "temperature": 1.7,
        "temperature_by_type": {"choice": 2.0, "score": 1.5},
        "isolated_levels": isolated,
    }
    (checkpoint / "decider_config.json").write_text(json.dumps(config))
    decider.export(checkpoint, folder / "package", name="test/smollm2", weights_mode="copy", log=_quiet)
    return folder / "package"


def export_typed(model: Path, folder: Path) -> Path:
    """A package with the prompt of `noulxp export anyjev`, whose own entry needs the model in torch."""
    from noulxp.export import anyjev, common
    from noulxp.tokens import Tokens

    folder.mkdir(parents=True)
    common.place(model, folder / "model.gguf", "copy")
    write_tokenizer(model, folder / "tokenizer.json")
    template = (
        "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
    )
    prompt = anyjev.prompt(Tokens(folder / "tokenizer.json"), template, "You decide.")
    common.write_json(folder / "prompt.json", prompt)
    common.write_json(folder / "calibration.json", anyjev.calibration())
    files = {
        "weights": common.entry(folder, "model.gguf", format="gguf"),
        **{name: common.entry(folder, f"{name}.json") for name in ("tokenizer", "prompt", "calibration")},
    }
    limits = {"max_tokens": 8192, "max_options": anyjev.MAX_CHOICE, "max_levels": anyjev.MAX_LEVELS}
    common.write_manifest(
        folder,
        common.manifest(
            name="test/typed", profile="causal-letters", files=files, limits=limits,
            confidence={}, source={}, standard=anyjev.STANDARD,
        ),
    )  # fmt: skip
    return folder


def requests() -> list[dict[str, Any]]:
    """The 52 requests of NoulXP's conformance set."""
    from noulxp.conformance import DEFAULT_REQUESTS, read_jsonl

    return [case["request"] for case in read_jsonl(DEFAULT_REQUESTS)]


class TokenizerFile:
    """A `tokenizer.json` behind the one method that a prompter calls."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(path))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids


def _quiet(_line: str) -> None:
    """What exporters print."""
