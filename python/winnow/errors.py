"""The exceptions that winnow raises. Every message is a sentence that says what to change."""

__all__ = [
    "Error",
    "InvalidArgument",
    "NotFound",
    "BadFile",
    "Unsupported",
    "MissingPackage",
    "OutOfMemory",
    "ContextFull",
    "Cancelled",
    "IoError",
    "InternalError",
]


class Error(Exception):
    """The base class of winnow's exceptions."""


class InvalidArgument(Error, ValueError):
    """An option, budget or prompt that cannot be used as given."""


class NotFound(Error, ValueError):
    """A file, method or option that does not exist."""


class BadFile(Error, ValueError):
    """A truncated, corrupt, foreign or unsupported file."""


class Unsupported(Error, RuntimeError):
    """A valid request that this build, model or machine cannot serve."""


class MissingPackage(Unsupported, ImportError):
    """A request that needs a Python package which is not installed; the message has the command to install it."""


class OutOfMemory(Error, MemoryError):
    """The memory limit of the cache, or the machine's memory, is exhausted."""


class ContextFull(Error, ValueError):
    """More tokens than the context holds."""


class Cancelled(Error, RuntimeError):
    """A callback asked to stop."""


class IoError(Error, OSError):
    """Reading or writing failed."""


class InternalError(Error, RuntimeError):
    """A broken invariant: a bug in winnow, please report it."""
