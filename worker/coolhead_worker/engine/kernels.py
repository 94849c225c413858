"""Which machine code multiplies here: numbers of equal kernels are equal, others only close."""

from __future__ import annotations

import functools
import hashlib

import llama_cpp as llama


@functools.cache
def kernels_id() -> str:
    """8 hex digits over what llama.cpp says of itself and this processor's abilities."""
    return hashlib.sha256(llama.llama_print_system_info()).hexdigest()[:8]
