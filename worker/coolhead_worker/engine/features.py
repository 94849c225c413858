"""Which logits of the trunk row serve as features of a learned head.

Guarantee: the choice depends on the two sizes alone, never on a random generator of some library
version; the same ids come out for ever, and `ids_digest` names them.

The last row's logits are a linear image of the hidden state, so 2 n_embd of them carry all of it
without asking the model for embeddings (which would make every token of the batch an output).
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

_SEED = b"coolhead features 1"


def feature_ids(n_vocab: int, n_embd: int) -> NDArray[np.int32]:
    """(min(2 n_embd, n_vocab),) different token ids, ascending."""
    wanted = min(2 * n_embd, n_vocab)
    chosen: set[int] = set()
    counter = 0
    while len(chosen) < wanted:
        block = hashlib.sha256(_SEED + counter.to_bytes(8, "little")).digest()
        for at in range(0, 32, 8):
            if len(chosen) < wanted:
                chosen.add(int.from_bytes(block[at : at + 8], "little") % n_vocab)
        counter += 1
    return np.array(sorted(chosen), dtype=np.int32)


def ids_digest(ids: NDArray[np.int32]) -> str:
    """32 hex digits over the ids in order."""
    return hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest()[:32]
