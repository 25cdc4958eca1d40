"""Processes that can be killed or stopped in the middle of what they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from django.db import connections

fork = multiprocessing.get_context("fork")


class Child:
    """A process forked from this one, and so with everything imported, that does one thing."""

    def __init__(self, act: Callable[[], Any]) -> None:
        connections.close_all()
        self._receiver, sender = fork.Pipe(duplex=False)
        self._process = fork.Process(target=_do_and_send, args=(act, sender))
        with warnings.catch_warnings():
            # Python 3.12 warns of other threads. Those that there may be here wait for work, and hold no lock.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        sender.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._receiver.close()

    def returned(self) -> Any:
        """What came of it, once it has ended; ``None`` where the process was killed.

        Raises:
            AssertionError: It raised; its traceback is on stderr.
        """
        try:
            came: Any = self._receiver.recv()
        except EOFError:
            came = None
        self._process.join()
        assert self._process.exitcode in (0, -signal.SIGKILL)
        return came

    def wait_until_stopped(self) -> None:
        """Wait until the process has stopped itself, as by ``stop_this_process``, or has ended without."""
        os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        os.kill(self._pid, signal.SIGCONT)

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


def stop_this_process() -> None:
    """Stop, as a process does on a host that swaps or is migrated, until another one says to go on."""
    os.kill(os.getpid(), signal.SIGSTOP)


def kill_this_process() -> None:
    """End here, with nothing said or cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def _do_and_send(act: Callable[[], Any], sender: Connection) -> None:
    sender.send(act())
    connections.close_all()
