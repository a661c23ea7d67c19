"""One thread at a time loads the client library.

It takes a second, so it is loaded when it is first needed, by whichever thread needs it first: a
collector of one of several clusters, a sink. Its modules import each other in circles, and two
threads that enter such a circle at different places wait for each other, or see half a module.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Final

_LOADING: Final = threading.RLock()


def load_client_library() -> None:
    """All of it; the imports that follow find it whole."""
    with _LOADING:
        import_module("kafka")
