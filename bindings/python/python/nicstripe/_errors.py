"""Exceptions: a class for who must act, and Python's own class for the kind where it has one."""

import errno


class Error(OSError):
    """A call that failed. All exceptions of a client are of this class.

    ``word`` and ``number`` identify the kind of error, ``code`` the failure of a file operation
    (``"not_found"``, ``"exists"``, …; None for other errors), ``actor`` who must act, ``exit_code`` that
    of the command ``nicstripe``. ``retryable``: the same call may succeed later. ``resumable``: repeating
    the copy continues with what is durable at the receiver.
    """

    word = "error"
    number = 0
    actor = "caller"
    code = None
    exit_code = 1
    retryable = False
    resumable = False

    def __reduce__(self):
        fields = {name: getattr(self, name) for name in _FIELDS}
        return _rebuilt, (str(self.strerror or self), fields)


class CallerError(Error):
    """The caller must act: an argument, or the state of the program, is wrong."""


class MachineError(Error):
    """The owner of this machine must act: its files, its keys, its system."""


class PeerError(Error):
    """The owner of the other machine, or its daemon, must act."""


class NetworkError(Error):
    """Whoever looks after the cables must act."""


class DefectError(Error):
    """One of the two programs broke the protocol; an author of nicstripe must act."""


class IncompleteError(Error):
    """Entries of a tree could not be copied; all others were. ``report`` has both."""

    word = "incomplete"
    exit_code = 23
    report = None


_FIELDS = ("word", "number", "actor", "code", "exit_code", "retryable", "resumable")

_ACTORS = {
    "caller": CallerError,
    "machine": MachineError,
    "peer": PeerError,
    "network": NetworkError,
    "defect": DefectError,
}

# By the code of a file operation, else by the word.
_KINDS = {
    "not_found": (FileNotFoundError, errno.ENOENT),
    "exists": (FileExistsError, errno.EEXIST),
    "occupied": (FileExistsError, errno.EEXIST),
    "not_permitted": (PermissionError, errno.EPERM),
    "not_a_file": (IsADirectoryError, errno.EISDIR),
    "not_a_directory": (NotADirectoryError, errno.ENOTDIR),
    "no_space": (None, errno.ENOSPC),
    "busy": (None, errno.EBUSY),
    "io": (None, errno.EIO),
    "home": (ValueError, errno.EINVAL),
    "name": (ValueError, errno.EINVAL),
    "range": (ValueError, errno.EINVAL),
    "timed_out": (TimeoutError, errno.ETIMEDOUT),
    "connect": (ConnectionError, errno.ENOTCONN),
    "unreachable": (ConnectionError, errno.ENOTCONN),
    "abandoned": (ConnectionError, errno.ENOTCONN),
    "ended": (ConnectionError, errno.ECONNRESET),
    "resolve": (ConnectionError, errno.EHOSTUNREACH),
    "untrusted": (PermissionError, errno.EACCES),
    "untrusted_peer": (PermissionError, errno.EACCES),
}

for _class in (Error, IncompleteError, *_ACTORS.values()):
    _class.__module__ = "nicstripe"

_classes = {}


def _class_of(actor, kind):
    base = _ACTORS.get(actor, Error)
    if kind is None:
        return base
    if (base, kind) not in _classes:
        # Shown as the class for who must act.
        body = {"__doc__": base.__doc__, "__module__": "nicstripe"}
        _classes[base, kind] = type(base.__name__, (base, kind), body)
    return _classes[base, kind]


def make(text, **fields):
    """Returns the exception of an error of the library."""
    kind, number = _KINDS.get(fields.get("code")) or _KINDS.get(fields["word"]) or (None, errno.EIO)
    error = _class_of(fields["actor"], kind)(number, text)
    for name, value in fields.items():
        setattr(error, name, value)
    return error


def incomplete(text, report):
    """Returns the exception of a tree copy with entries that failed."""
    error = IncompleteError(errno.EIO, text)
    error.report = report
    return error


def _rebuilt(text, fields):
    if fields["word"] == IncompleteError.word:
        return IncompleteError(errno.EIO, text)
    return make(text, **fields)
