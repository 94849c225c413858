"""coolhead: typed decisions from local models, fed through Redis."""

__version__ = "0.1.0"
