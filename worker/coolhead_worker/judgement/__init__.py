"""The judgement room: logits in, calibrated probabilities, accepted answers and error bounds out."""
