"""The one exception hierarchy of the package.

Every error that threadteam raises on its own account derives from `ThreadteamError`. Wrong argument types and values
raise the built-in `TypeError`, `ValueError` and `OverflowError`, as in the rest of Python.
"""

from __future__ import annotations

import enum

__all__ = [
    "CalibrationError",
    "Cancelled",
    "DeviceReset",
    "EPFail",
    "EngineError",
    "Fail",
    "InternalError",
    "IntoTeamError",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "MissingExtra",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OnnxError",
    "PoolClosed",
    "Refused",
    "RefusedReason",
    "RunCancelled",
    "RunTerminated",
    "RuntimeException",
    "SplitError",
    "StepError",
    "ThreadStartError",
    "ThreadteamError",
    "TokenBusy",
    "TokenError",
    "TokenExpired",
    "TokenLent",
]


class ThreadteamError(Exception):
    """Base of every error that threadteam raises on its own account.

    Examples
    --------
    >>> import threadteam as tt
    >>> issubclass(tt.TokenBusy, tt.ThreadteamError)
    True
    """


class TokenError(ThreadteamError):
    """A token was used in a way that would run more tasks than its budget.

    The message names the token, the operation, and what to do instead. The pool stays usable.

    Examples
    --------
    >>> import threadteam as tt
    >>> [error.__name__ for error in tt.TokenError.__subclasses__()]
    ['TokenBusy', 'TokenLent', 'TokenExpired']
    """


class TokenBusy(TokenError):
    """An entry is running on the token, in another thread or around this very call.

    Examples
    --------
    >>> import threadteam as tt
    >>> token = tt.Exec.serial()
    >>> token.fork(1, lambda job, child: token.map(abs, [-1]))
    Traceback (most recent call last):
        ...
    threadteam.errors.TokenBusy: Exec.map(): an entry is running on Exec.serial(); ...
    """


class TokenLent(TokenError):
    """`reborrow()` or `limit()` lent the token, and the loan is still open.

    Examples
    --------
    >>> import threadteam as tt
    >>> token = tt.Exec.serial()
    >>> with token.reborrow():
    ...     token.map(abs, [-1])
    Traceback (most recent call last):
        ...
    threadteam.errors.TokenLent: Exec.map(): Exec.serial() is lent by Exec.reborrow(); ...
    """


class TokenExpired(TokenError):
    """The token is dead: it was closed, its body has returned, or the process was forked inside its entry.

    Examples
    --------
    >>> import threadteam as tt
    >>> token = tt.Exec.serial()
    >>> token.close()
    >>> token.map(abs, [-1])
    Traceback (most recent call last):
        ...
    threadteam.errors.TokenExpired: Exec.map(): Exec.serial() was closed; ...
    """


class RefusedReason(enum.Enum):
    """Why a section that needs all its participants at the same time was refused.

    Examples
    --------
    >>> import threadteam as tt
    >>> tt.RefusedReason.BUSY.value
    'busy'
    """

    FORK_CHILD = "fork_child"
    """The token was handed out by `fork`; its slots may share workers with its siblings."""
    CALLER_IN_POOL = "caller_in_pool"
    """The caller is a worker of the token's pool and would occupy a participant's slot."""
    UNAVAILABLE = "unavailable"
    """Not all members could be had without waiting for work that is running."""
    BUSY = "busy"
    """Another root token leads this team; or, of `Pool.into_team`, a token of the pool is lent or inside an entry."""


class _WithReason(ThreadteamError):
    """Base of what says by which rule participants were refused."""

    reason: RefusedReason

    def __init__(self, message: str, reason: RefusedReason = RefusedReason.UNAVAILABLE) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[_WithReason], tuple[str, RefusedReason]]:
        return type(self), (str(self), self.reason)


class Refused(_WithReason):
    """A section that needs all its participants at the same time cannot have them; nothing was run.

    Parameters
    ----------
    message : str
        What was refused and what to do instead.
    reason : RefusedReason
        Which rule refused it.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2) as pool:
    ...     team = pool.into_team()
    ...     with team.exec() as token:
    ...         try:
    ...             team.try_exec()
    ...         except tt.Refused as refused:
    ...             print(refused.reason)
    ...     team.close()
    RefusedReason.BUSY
    """


class IntoTeamError(_WithReason):
    """`Pool.into_team` could not have all members; the pool is still usable.

    Parameters
    ----------
    message : str
        What was asked for and what to do instead.
    reason : RefusedReason
        Which rule refused it.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2) as pool:
    ...     try:
    ...         pool.exec().fork(1, lambda job, child: pool.into_team())
    ...     except tt.IntoTeamError as error:
    ...         print(error.reason)
    RefusedReason.BUSY
    """


class PoolClosed(ThreadteamError):
    """The pool was closed, or `into_team` moved it into a team.

    Examples
    --------
    >>> import threadteam as tt
    >>> pool = tt.Pool(2)
    >>> pool.close()
    >>> pool.exec()
    Traceback (most recent call last):
        ...
    threadteam.errors.PoolClosed: Pool.exec(): pool "threadteam" of width 2 is closed; make a new Pool
    """


class ThreadStartError(ThreadteamError):
    """The system refused to start all workers of a pool; the pool runs with those it has.

    Parameters
    ----------
    message : str
        What was refused and what to do instead.
    started, wanted : int
        Workers that run, and workers the pool asked for.

    Examples
    --------
    >>> import threadteam as tt
    >>> error = tt.ThreadStartError("2 of 3 workers were started", started=2, wanted=3)
    >>> error.started, error.wanted
    (2, 3)
    """

    started: int
    wanted: int

    def __init__(self, message: str, started: int = 0, wanted: int = 0) -> None:
        super().__init__(message)
        self.started = started
        self.wanted = wanted

    def __reduce__(self) -> tuple[type[ThreadStartError], tuple[str, int, int]]:
        return type(self), (str(self), self.started, self.wanted)


class SplitError(ThreadteamError, ValueError):
    """The sizes given to `TeamExec.split` are empty, contain a value below one, or exceed the team.

    Examples
    --------
    >>> import threadteam as tt
    >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    ...     team.split([2, 1], lambda child, part: None)
    Traceback (most recent call last):
        ...
    threadteam.errors.SplitError: the sizes of child teams must ... the size of the team, 2; got [2, 1]
    """


class Cancelled(ThreadteamError):
    """A peer of this participant failed, so the barrier will never be complete.

    Examples
    --------
    >>> import threadteam as tt
    >>> def body(participant):
    ...     if participant.index == 1:
    ...         raise KeyError("a peer")
    ...     participant.barrier()  # raises Cancelled in participant 0
    >>> with tt.Pool(2, acquire_timeout=10.0) as pool, pool.exec().team() as team:
    ...     team.run_with(body)
    Traceback (most recent call last):
        ...
    KeyError: 'a peer'
    """


class _AtStep(ThreadteamError):
    """Base of what ends a run of a program at one of its steps.

    Parameters
    ----------
    message : str
        What happened.
    step : int
        The number of the step.
    label : str
        The label of the step.
    """

    step: int
    label: str

    def __init__(self, message: str, step: int = 0, label: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.label = label

    def __reduce__(self) -> tuple[type[_AtStep], tuple[str, int, str]]:
        return type(self), (str(self), self.step, self.label)


class StepError(_AtStep):
    """A step of a program failed; the message names it. The outputs of the run hold unspecified elements."""


class RunCancelled(_AtStep):
    """A run of a program ended before this step because its `CancelFlag` was set."""


class InternalError(ThreadteamError):
    """A defect of threadteam itself: its native code panicked. The pool stays usable; please report the message.

    Examples
    --------
    >>> import threadteam as tt
    >>> issubclass(tt.InternalError, tt.ThreadteamError)
    True
    """


class MissingExtra(ThreadteamError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it.

    Examples
    --------
    >>> import threadteam as tt
    >>> issubclass(tt.MissingExtra, ImportError)
    True
    """


class CalibrationError(ThreadteamError):
    """What a section costs could not be measured: the measurements vary too much, or there is one CPU only.

    Examples
    --------
    >>> import threadteam as tt
    >>> issubclass(tt.CalibrationError, tt.ThreadteamError)
    True
    """


# ONNX: the class names of ONNX Runtime, found at `tt.onnx`. They share a base, so that one clause catches them all.


class OnnxError(ThreadteamError):
    """Base of the errors of `tt.onnx`.

    Examples
    --------
    >>> import threadteam.onnx
    >>> try:
    ...     threadteam.onnx.InferenceSession("missing.onnx")
    ... except threadteam.onnx.OnnxError as error:
    ...     print(type(error).__name__)
    NoSuchFile
    """


class InvalidArgument(OnnxError, ValueError):
    """An input or an option does not fit the model: missing, unexpected, or of the wrong type, rank or shape."""


class NoSuchFile(OnnxError, FileNotFoundError):
    """The model file, or a file with its external data, does not exist."""


class InvalidProtobuf(OnnxError, ValueError):
    """The bytes are not an ONNX model, or end too early."""


class InvalidGraph(OnnxError, ValueError):
    """The graph breaks a rule of ONNX: a cycle, a name defined twice or never, a missing attribute."""


class NotImplemented(OnnxError, NotImplementedError):  # noqa: A001 - ONNX Runtime's name for it
    """The model uses operators that the `onnx` package cannot evaluate; the message lists all of them."""


class Fail(OnnxError):
    """A node failed while the model was planned or run; the message names the node."""


class RuntimeException(Fail, RuntimeError):
    """A node of a running model met values that it cannot process; the message names the node."""


class RunTerminated(Fail):
    """`RunOptions.terminate` was set, so the run stopped before its next step."""


class ModelLoadCanceled(Fail):
    """`SessionOptions.set_load_cancellation_flag` was set, so the model was not loaded."""


# ONNX Runtime raises these for what is not here: code that catches them runs.


class NoModel(OnnxError):
    """Of a session without a model. Never raised: a session is made with its model."""


class ModelLoaded(OnnxError):
    """Of a second model for a session. Never raised: a session has one model."""


class ModelRequiresCompilation(OnnxError):
    """Of models that must be compiled first. Never raised: none must."""


class EngineError(OnnxError):
    """Of an execution provider's engine. Never raised: there is one provider, without an engine."""


class EPFail(OnnxError):
    """Of an execution provider. Never raised: failures of nodes are `RuntimeException`."""


class DeviceReset(OnnxError):
    """Of a device that was lost. Never raised: there is the CPU."""


class NotFound(OnnxError):
    """Of what a provider looks for. Never raised: a file that is missing is `NoSuchFile`."""
