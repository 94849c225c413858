"""From scripts to pieces: what is shared by all questions, what a state becomes, what follows it.

Guarantee: pure; a token may span the words of author and user as if the prompt were tokenised
whole; only control tokens, the author's own cuts and the two ends of the state part it. Those two
ends are put where this vocabulary splits anyway, found by trying; text of users is only ever in
pieces that are no control pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coolhead_worker.engine.decision.script import (
    AS_IS,
    Cut,
    Escape,
    Part,
    Said,
    Script,
    Stated,
    Told,
    tidy,
)
from coolhead_worker.engine.dialect import Piece

_NAME = re.compile(r"<[^<>\s]{1,64}>|\[[A-Z_/]{1,32}\]")
_AHEAD = 24  # characters after a seam that can move its tokens
_STARTS = (
    "Word",
    "word two",
    " word",
    "\nword",
    "\n\n  word",
    "(so)",
    '"so"',
    "é",
    "日本",
    "12",
    "<b>",
    "- a",
)
_ENDS = (
    "a word",
    "a word.",
    "12",
    "so?!",
    "(so)",
    '"so"',
    "word\n",
    "word. \n\n",
    "word ",
    "é",
    "日本。",
    "<b>",
)


class Tokeniser(Protocol):
    """A vocabulary that can also read names of control tokens."""

    def tokens(self, text: str, *, control: bool = False) -> list[int]:
        """Token ids; `control` turns names of control tokens into them."""


@dataclass(frozen=True, slots=True)
class StatePlace(Piece):
    """Where the state stands in a row that can't share its beginning with other rows."""

    escape: Escape = AS_IS


@dataclass(frozen=True, slots=True)
class Speech:
    """How the prompts of one model share their beginning.

    `head`: the author's words before all states. `opening` and `closing`: the ends of the author's
    words that are tokenised together with the state. `shared` is False when the prompts begin with
    the question: then `head` is empty and every row stands alone.
    """

    head: str
    opening: str
    closing: str
    escape: Escape
    shared: bool

    def state(self, text: str) -> str:
        """What is tokenised for a state, as plain text."""
        return self.opening + self.escape.spell(text) + self.closing

    def branch(self, script: Script, tokeniser: Tokeniser) -> tuple[Piece, ...]:
        """What follows the state; with a `StatePlace` in it, the whole row."""
        before, escape, after = _split(script)
        begins = _told_only(before) == self.head + self.opening
        if not (self.shared and begins and escape == self.escape):
            return pieces(script, tokeniser)
        rest = _without(after, self.closing)
        return pieces(script if rest is None else rest, tokeniser)


APART = Speech("", "", "", AS_IS, shared=False)


def stands_alone(branch: Sequence[Piece]) -> bool:
    """Whether this is a whole row: nothing comes before it, the state is inside it."""
    return any(isinstance(piece, StatePlace) for piece in branch)


def with_state(branch: Sequence[Piece], text: str) -> tuple[Piece, ...]:
    """A whole row, its state filled in and joined with the plain text around it."""
    done: list[Piece] = []
    for piece in branch:
        said = piece.escape.spell(text) if isinstance(piece, StatePlace) else piece.text
        if done and not piece.control and not done[-1].control:
            done[-1] = Piece(done[-1].text + said)
        else:
            done.append(Piece(said, piece.control))
    return tuple(done)


def speech_of(samples: Sequence[Script], tokeniser: Tokeniser) -> Speech:
    """The best shared beginning of prompts like these.

    Args:
        samples: scripts of questions of all types.
        tokeniser: the model's vocabulary.
    """
    splits = [_split(script) for script in samples]
    beginnings = {_told_only(before) for before, _, _ in splits}
    escapes = {escape for _, escape, _ in splits}
    beginning = beginnings.pop() if len(beginnings) == 1 else None
    if beginning is None or len(escapes) != 1:
        return APART
    head = _head(beginning, tokeniser)
    closing = _closing([after for _, _, after in splits], tokeniser)
    return Speech(head, beginning[len(head) :], closing, escapes.pop(), shared=True)


def pieces(script: Script, tokeniser: Tokeniser) -> tuple[Piece, ...]:
    """What is tokenised one by one: control tokens and the author's words around them, plain runs."""
    done: list[Piece] = []
    run: list[Part] = []
    for part in _atoms(script, tokeniser):
        if isinstance(part, Cut | _Control):
            done += _run(run)
            run = []
            if isinstance(part, _Control):
                done.append(Piece(part.text, control=True))
        else:
            run.append(part)
    return tuple(done + _run(run))


@dataclass(frozen=True, slots=True)
class _Control:
    text: str


def _atoms(script: Script, tokeniser: Tokeniser) -> list[Part | _Control]:
    """The script with the names of control tokens in the author's words set apart."""
    atoms: list[Part | _Control] = []
    for part in script:
        atoms += _told_atoms(part.text, tokeniser) if isinstance(part, Told) else [part]
    return atoms


def _told_atoms(text: str, tokeniser: Tokeniser) -> list[Part | _Control]:
    atoms: list[Part | _Control] = []
    at = 0
    for match in _NAME.finditer(text):
        if _is_control(match[0], tokeniser):
            atoms += [Told(text[at : match.start()]), _Control(match[0])]
            at = match.end()
    return [*atoms, Told(text[at:])]


def _is_control(name: str, tokeniser: Tokeniser) -> bool:
    ids = tokeniser.tokens(name, control=True)
    return len(ids) == 1 and ids != tokeniser.tokens(name)


def _run(run: Sequence[Part]) -> list[Piece]:
    """Plain text between two control tokens or cuts, in one piece unless the state is in it."""
    done: list[Piece] = []
    for part in run:
        if isinstance(part, Stated):
            done.append(StatePlace("", escape=part.escape))
        elif isinstance(part, Told | Said) and part.text:
            last = done[-1] if done else None
            if last is None or isinstance(last, StatePlace):
                done.append(Piece(part.text))
            else:
                done[-1] = Piece(last.text + part.text)
    return done


def _split(script: Script) -> tuple[Script, Escape, Script]:
    """What is before the state, how the state is spelt, what is after it."""
    at = next(i for i, part in enumerate(script) if isinstance(part, Stated))
    place = script[at]
    return script[:at], place.escape if isinstance(place, Stated) else AS_IS, script[at + 1 :]


def _told_only(parts: Script) -> str | None:
    """The author's words, or None when others speak too."""
    told = [part.text for part in parts if isinstance(part, Told)]
    return "".join(told) if len(told) == len(parts) else None


def _without(after: Script, closing: str) -> Script | None:
    """The script less `closing` at its beginning; None when it begins otherwise."""
    if not closing:
        return after
    first = after[0] if after else None
    if not isinstance(first, Told) or not first.text.startswith(closing):
        return None
    return tidy((Told(first.text[len(closing) :]), *after[1:]))


def _plain_end(text: str, tokeniser: Tokeniser) -> int:
    """Where the text after its last control token begins."""
    ends = [match.end() for match in _NAME.finditer(text) if _is_control(match[0], tokeniser)]
    return ends[-1] if ends else 0


def _head(beginning: str, tokeniser: Tokeniser) -> str:
    """The longest part of the beginning after which this vocabulary always splits."""
    plain = _plain_end(beginning, tokeniser)
    run = beginning[plain:]
    last_word = max((match.end() for match in re.finditer(r"\w+", run)), default=0)
    places = (0, *range(last_word, len(run) + 1)) if last_word else (0, *range(1, len(run) + 1))
    best = max(places, key=lambda at: (_agreeing(run, at, _STARTS, tokeniser), at))
    return beginning[: plain + best]


def _agreeing(run: str, at: int, starts: Sequence[str], tokeniser: Tokeniser) -> int:
    """At how many of the starts a split of `run` at this place changes no token."""
    return sum(_same(run[:at], run[at:] + start, tokeniser) for start in starts)


def _same(left: str, right: str, tokeniser: Tokeniser) -> bool:
    return tokeniser.tokens(left + right) == tokeniser.tokens(left) + tokeniser.tokens(right)


def _closing(afters: Sequence[Script], tokeniser: Tokeniser) -> str:
    """How much of what follows the state goes with it, so that the vocabulary splits there anyway."""
    leads = [_lead(after, tokeniser) for after in afters]
    common = _common_start([lead for lead, _ in leads])
    if all(isinstance(_after_told(after), Cut) for after in afters):
        return common  # the author's own cut: what stands before it belongs to the state
    signs = re.match(r"[^\w<\[]*", common)
    most = signs.end() if signs else 0
    rest = [lead[:_AHEAD] + ("" if len(lead) > _AHEAD or ends else "Word") for lead, ends in leads]

    def agreeing(at: int) -> int:
        return sum(_same(end + text[:at], text[at:], tokeniser) for end in _ENDS for text in rest)

    return common[: max(range(most + 1), key=lambda at: (agreeing(at), -at))]


def _common_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))]


def _after_told(after: Script) -> Part | None:
    rest = after[1:] if after and isinstance(after[0], Told) else after
    return rest[0] if rest else None


def _lead(after: Script, tokeniser: Tokeniser) -> tuple[str, bool]:
    """The author's plain words right after the state, and whether a control token ends them."""
    if not after or not isinstance(after[0], Told):
        return "", False
    atoms = _told_atoms(after[0].text, tokeniser)
    first = atoms[0]
    return (first.text if isinstance(first, Told) else ""), len(atoms) > 1
