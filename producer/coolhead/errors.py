"""Every error a user of coolhead can meet, as one closed tree.

    CoolheadError
    ├── ContractError            the request can never work: mend it, do not repeat it
    │   ├── InvalidState         empty, NUL, not UTF-8, too many bytes
    │   ├── InvalidQuestion      limits of System One questions broken
    │   ├── InvalidPolicy        a threshold that is NaN or out of range
    │   ├── InvalidJob           id, lane or deadline out of range; envelope that does not parse
    │   ├── UnknownVersion       envelope of another coolhead
    │   ├── InvalidTask          a task file that does not parse
    │   ├── UnknownTask          a task name nobody has a file for
    │   ├── StateTooLong         more tokens than the model's window: never cut, always refused
    │   ├── FunctionRefused      a queued job that is not coolhead's
    │   └── IdConflict           the caller's id already stands for another question
    ├── QueueError               the queue did not take or give
    │   ├── QueueUnreachable     no server, or it went away
    │   ├── QueueDenied          NOAUTH, WRONGPASS or NOPERM
    │   └── QueueFull            out of memory or at its length cap: slow down
    ├── Unanswered               a job that ends, or waits, without a decision
    │   ├── WaitTimeout          still queued or running; the reason is in the text
    │   ├── JobNotFound          no such job, or its result has expired
    │   ├── JobRejected          the policy says refuse; never retried
    │   ├── JobFailed            the input can't be judged; never retried
    │   ├── JobExpired           its deadline passed
    │   └── JobQuarantined       it ended its worker too often
    └── NodeError                this node can't work
        ├── NodeBusy             another worker holds this node
        ├── InvalidSettings      a setting that is unknown or out of range
        ├── ModelMissing         no such file
        ├── ModelMismatch        sha256 differs from the pinned one
        ├── ModelCorrupt         the file does not load, or fails its self-check
        ├── ModelUnsupported     a kind of decision model that this engine can't read
        ├── TierUnloaded         the model was given up for memory: it is loaded again later
        ├── DecodeFailed         the model call returned an error; another try may work
        │   ├── NoRoom           the call did not fit into the context: try fewer items
        │   └── NotFinite        the model gave NaN or infinity: is it damaged?
        ├── DecodeTimeout        the model call passed its deadline and was aborted
        ├── DecodeInterrupted    the model call was stopped because the machine turned unsafe
        ├── InvalidLabels        a labels file with a bad row
        ├── FitMismatch          a fit made for another model, question or plan
        └── FitFailed            the labels at hand can't support a fit

Guarantee: `str(error)` is one line that says what to do, `error.code` is a stable word,
and no caller has to look at the text to tell one kind from another.
"""

from __future__ import annotations

from typing import ClassVar


def one_line(text: str) -> str:
    """Fold all white space, so that a message never breaks a log line or a table row."""
    return " ".join(text.split())


class CoolheadError(Exception):
    """coolhead could not do what was asked."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message or (type(self).__doc__ or "").split("\n")[0]))

    @property
    def code(self) -> str:
        """The stable name of this kind of error: its class name."""
        return type(self).__name__


class ContractError(CoolheadError, ValueError):
    """The request can never work as it is."""

    exit_code = 2


class InvalidState(ContractError):
    """The state is not usable text, object or list."""


class InvalidQuestion(ContractError):
    """A question breaks the limits of the contract."""


class InvalidPolicy(ContractError):
    """A policy value is out of range."""


class InvalidJob(ContractError):
    """The job's id, lane, deadline or envelope is not valid."""


class UnknownVersion(ContractError):
    """The job was written by another version of coolhead: upgrade the older side."""


class InvalidTask(ContractError):
    """The task file does not parse."""


class UnknownTask(ContractError):
    """No task of that name is installed."""


class StateTooLong(ContractError):
    """The state has more tokens than the model reads: shorten it, nothing is cut silently."""


class FunctionRefused(ContractError):
    """This worker runs coolhead's own function and nothing else."""


class IdConflict(ContractError):
    """This id already stands for another request: use a new id."""


class QueueError(CoolheadError):
    """The queue did not answer as it should."""


class QueueUnreachable(QueueError):
    """No answer from Redis: check the URL and that the server runs."""


class QueueDenied(QueueError):
    """Redis refused: check user, password and ACL."""


class QueueFull(QueueError):
    """The queue is full: slow down and try again."""


class Unanswered(CoolheadError):
    """There is no decision for this job."""


class WaitTimeout(Unanswered, TimeoutError):
    """No answer yet."""


class JobNotFound(Unanswered, LookupError):
    """No such job, or its result has expired."""


class JobRejected(Unanswered):
    """The policy refuses to decide this input."""


class JobFailed(Unanswered):
    """This input can't be judged."""


class JobExpired(Unanswered):
    """The deadline passed before a node could take the job."""


class JobQuarantined(Unanswered):
    """The job ended its worker too often and was set aside."""


class NodeError(CoolheadError):
    """This node can't work."""


class NodeBusy(NodeError):
    """Another worker already runs on this node."""


class InvalidSettings(NodeError, ValueError):
    """A setting is unknown or out of range."""

    exit_code = 2


class ModelMissing(NodeError):
    """The model file is not there."""


class ModelMismatch(NodeError):
    """The model file is not the pinned one: its sha256 differs."""


class ModelCorrupt(NodeError):
    """The model file does not load."""


class ModelUnsupported(NodeError):
    """The model is of a kind that this engine can't read."""


class TierUnloaded(NodeError):
    """The model of this tier was given up for memory; it is loaded again when there is room."""


class DecodeFailed(NodeError):
    """The model call failed."""


class NoRoom(DecodeFailed):
    """The model call did not fit into the context."""


class NotFinite(DecodeFailed):
    """The model gave numbers that are not finite."""


class DecodeInterrupted(NodeError):
    """The model call was stopped because the machine turned unsafe."""


class DecodeTimeout(NodeError, TimeoutError):
    """The model call passed its deadline and was aborted."""


class InvalidLabels(NodeError, ValueError):
    """A row of the labels file is not valid."""

    exit_code = 2


class FitMismatch(NodeError):
    """The fit was made for another model, question or plan."""

    exit_code = 3


class FitFailed(NodeError):
    """The labels at hand can't support a fit."""
