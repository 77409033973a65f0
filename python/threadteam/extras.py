"""Optional dependencies: imported where they are needed, and named by their extra when they are missing."""

from __future__ import annotations

from types import ModuleType

from threadteam import _forks
from threadteam.errors import MissingExtra

__all__ = ["require"]


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency.

    Parameters
    ----------
    module : str
        The module to import, for instance ``"matplotlib.pyplot"``.
    extra : str
        The extra of this package that installs it.
    purpose : str
        What needs it, as the subject of the error's sentence.

    Returns
    -------
    ModuleType
        The module.

    Raises
    ------
    MissingExtra
        When it is not installed; the message names the extra.

    Examples
    --------
    >>> from threadteam.extras import require
    >>> require("json", "all", "an example").__name__
    'json'
    >>> require("no_such_module", "plot", "a timeline picture")
    Traceback (most recent call last):
        ...
    threadteam.errors.MissingExtra: a timeline picture needs no_such_module: pip install 'threadteam[plot]'
    """
    try:
        return _forks.load(module)
    except ModuleNotFoundError as error:
        # A missing dependency of the dependency is a defect of its installation, not a missing extra.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        package = module.partition(".")[0]
        raise MissingExtra(f"{purpose} needs {package}: pip install 'threadteam[{extra}]'") from None
