"""What winnow raises. Every message is a sentence that says what to change."""

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
    """The base of all of them."""


class InvalidArgument(Error, ValueError):
    """An option, budget or prompt that cannot be used as given."""


class NotFound(Error, ValueError):
    """No such file, method or option."""


class BadFile(Error, ValueError):
    """A truncated, corrupt, foreign or unsupported file."""


class Unsupported(Error, RuntimeError):
    """Valid, but not something that this build, model or machine can do."""


class MissingPackage(Unsupported, ImportError):
    """What was asked for needs a Python package that is not installed; the message has the command."""


class OutOfMemory(Error, MemoryError):
    """The limit of the cache's memory, or the machine's."""


class ContextFull(Error, ValueError):
    """More tokens than the context holds."""


class Cancelled(Error, RuntimeError):
    """A callback asked to stop."""


class IoError(Error, OSError):
    """Reading or writing failed."""


class InternalError(Error, RuntimeError):
    """A broken invariant: a bug in winnow, please report it."""
