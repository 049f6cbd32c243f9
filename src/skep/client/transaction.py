# Written by dev/twins.py from async_transaction.py: change that, and run it.

"""A transaction for threads: a block collects its parts, and the end of the block commits them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from skep.client.parts import TransactionParts
from skep.client.sender import Sender
from skep.ids import IdMint


class Transaction(TransactionParts):
    """``with client.transaction() as tx:`` commits at the end of the block, and does nothing on an exception."""

    def __init__(self, client: Sender, mint: IdMint) -> None:
        super().__init__(client.clock, mint, client.settings.urls[0])
        self._client = client

    def commit(self) -> None:
        """Commit now instead of at the end of the block."""
        call = self.call()
        if call is None:
            return
        try:
            with self.traced():
                self.done(self._client.run(call))
        except BaseException as error:
            self.ended(error)
            raise
        self.ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandoned(error)
        elif self.committed is None:
            self.commit()
