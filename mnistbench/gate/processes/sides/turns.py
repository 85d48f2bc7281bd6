"""The turns of the two sides: each has a process, and sleeps while the other one computes."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mnistbench.core.errors import MnistbenchError


def in_pairs(names: Sequence[str], coin: random.Random, pairs: int) -> Iterator[str]:
    """Yield the sides pair by pair: in random order, then in the reverse order, and so on."""
    order = list(names)
    for pair in range(pairs):
        order = order[::-1] if pair % 2 else coin.sample(order, len(order))
        yield from order


class PeerError(MnistbenchError):
    """The process of the other side has ended, or does something else."""


class Turns:
    """The turns of one side; the process of the other side is at the other end of a socket.

    The process whose turn it is computes. The other one waits for a byte and so does not use the
    core that both share.

    Args:
        name: of this side.
        peer: the socket.
        first: the side that sends first in an exchange, the same in both processes. It has to be
            drawn: which side sends first decides which one runs first afterwards, and a fixed side
            would have an advantage in every trial.
        alive: called after each turn.
    """

    def __init__(
        self, name: str, peer: socket.socket, first: str, alive: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._peer = peer
        self._first = first
        self._alive = alive
        self._lines = peer.makefile("rb")
        # The side that had the last turn; both processes begin with the same one.
        self._holder = first

    def close(self) -> None:
        """Close the socket; the other process notices."""
        self._lines.close()
        self._peer.close()

    def of(self, names: Iterable[str]) -> Iterator[None]:
        """Yield at each turn of this process's side.

        Return when those of both, given alike in both processes, are over.

        Raises:
            PeerError: the other process has ended.
        """
        for name in names:
            if name != self._holder:
                if self._holder == self._name:
                    self._send(name)
                else:
                    self._receive()
                self._holder = name
            if name == self._name:
                yield
                self._alive()
        self.exchange(None)  # the process with the last turn is done, too

    def at_once(self, firsts: Iterable[str]) -> Iterator[None]:
        """Yield in both processes at once; each time, wait for the other process.

        ``firsts`` sends first, the same in both.

        Raises:
            PeerError: the other process has ended.
        """
        for first in firsts:
            self.exchange(None, first)
            yield
            self._alive()
        self.exchange(None)

    def exchange(self, value: Any, first: str = "") -> list[Any]:
        """Exchange values, as JSON, with the other process and return both.

        ``first`` sends first, by default the drawn side.

        Raises:
            PeerError: the other process has ended.
        """
        # One sends first: two long values would fill the buffers of both directions.
        if self._name == (first or self._first):
            self._send(value)
            return [value, self._receive()]
        other = self._receive()
        self._send(value)
        return [value, other]

    def agree(self, test: str) -> None:
        """Check that the other process runs the same test now.

        The test is empty after the last one.

        Raises:
            PeerError: it runs another test, or has ended.
        """
        own, other = self.exchange(test)
        if own != other:
            raise PeerError(
                f"the sides run different tests: {own or 'none'}, and {other or 'none'} on the "
                "other side"
            )

    def _send(self, value: Any) -> None:
        try:
            self._peer.sendall(json.dumps(value).encode() + b"\n")
        except OSError:
            raise PeerError("the process of the other side has ended") from None

    def _receive(self) -> Any:
        try:
            line = self._lines.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise PeerError("the process of the other side has ended")
        return json.loads(line)
