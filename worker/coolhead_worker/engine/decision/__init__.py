"""Decision models: GGUF files and packages whose author says how they are asked and calibrated.

Guarantee: such a model is asked in its author's words, read at its author's tokens and divided by
its author's temperatures, or it is refused; what can't be followed exactly is never guessed.
"""
