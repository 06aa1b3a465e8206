"""The version, by itself, so that nothing has to be imported for it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
