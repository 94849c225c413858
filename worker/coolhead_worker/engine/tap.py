"""The hidden states of some layers, taken while a call runs, without making any token an output.

Guarantee: armed, a call gives those layers' states of all its tokens in order, and may end at the
highest of them: what lies above is then not computed at all. Not armed, a call pays one short question
a graph node.

llama.cpp asks its context's callback about every node of the graph ("do you want this one?") and shows
it those that are wanted once they are computed; a "no" to go on ends the graph. Source:
`ggml_backend_sched_compute_splits` in ggml/src/ggml-backend.cpp.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp as llama
import numpy as np
from llama_cpp._ggml import libggml
from numpy.typing import NDArray

from coolhead.errors import ModelUnsupported

_name: Any = libggml.ggml_get_name
_name.argtypes, _name.restype = [ctypes.c_void_p], ctypes.c_char_p
_size: Any = libggml.ggml_nbytes
_size.argtypes, _size.restype = [ctypes.c_void_p], ctypes.c_size_t
# Works for tensors of any backend, where a pointer to the data would not.
_fetch: Any = libggml.ggml_backend_tensor_get
_fetch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
_fetch.restype = None

Hidden = NDArray[np.float32]


class Tap:
    """On the outputs of some layers.

    Args:
        layers: from 0, ascending.
        width: numbers of one token's state.
    """

    def __init__(self, layers: tuple[int, ...], width: int) -> None:
        self._names = [f"l_out-{layer}".encode() for layer in layers]
        self._width = width
        self._armed = self._last = False
        self._parts: dict[bytes, list[Hidden]] = {}
        #: Keep this object as long as the context that has it.
        self.callback = llama.ggml_backend_sched_eval_callback(self._asked)

    def arm(self, *, last: bool) -> None:
        """Take the states of the next call; `last`: nothing above the highest layer is wanted of it."""
        self._armed, self._last = True, last
        self._parts = {name: [] for name in self._names}

    def take(self) -> list[Hidden]:
        """For each layer (n, width) float32, the states of all tokens of the call; not armed any more.

        Raises:
            ModelUnsupported: the model's graph has no such layer output.
        """
        self._armed = False
        missing = [name.decode() for name, parts in self._parts.items() if not parts]
        if missing:
            raise ModelUnsupported(
                f"this model shows no hidden states ({missing[0]}): learned heads need them"
            )
        return [np.concatenate(self._parts[name]) for name in self._names]

    def disarm(self) -> None:
        """Take nothing."""
        self._armed = False

    def _asked(self, node: int, ask: bool, _data: object) -> bool:
        if not self._armed:
            return False
        name = _name(node)
        if ask:
            return name in self._parts
        part = np.empty(_size(node) // 4, dtype=np.float32)
        _fetch(node, part.ctypes.data, 0, part.nbytes)
        self._parts[name].append(part.reshape(-1, self._width))
        return not (self._last and name == self._names[-1])
