"""Other libraries' thread pools: how wide they are, and limiting them to a token's budget.

Examples
--------
>>> import threadteam as tt
>>> all(row.width >= 1 for row in tt.interop.widths())
True
"""

from __future__ import annotations

from threadteam.interop.limits import Width
from threadteam.interop.widths import Row, Widths, widths

__all__ = ["Row", "Width", "Widths", "widths"]
