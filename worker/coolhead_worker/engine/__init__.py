"""The engine room: a model file in, probabilities of labels and features of heads out.

Guarantee: `llama.py` alone touches llama.cpp; nothing is ever generated; the numbers of an item do
not depend on which other items and questions share its model call.
"""
