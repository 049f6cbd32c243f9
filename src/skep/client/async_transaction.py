"""A transaction for asyncio: a block collects its parts, and the end of the block commits them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from skep.client.async_sender import AsyncSender
from skep.client.parts import TransactionParts
from skep.ids import IdMint


class AsyncTransaction(TransactionParts):
    """``async with client.transaction() as tx:`` commits at the end of the block, and does nothing on an exception."""

    def __init__(self, client: AsyncSender, mint: IdMint) -> None:
        super().__init__(client.clock, mint, client.settings.urls[0])
        self._client = client

    async def commit(self) -> None:
        """Commit now instead of at the end of the block."""
        call = self.call()
        if call is None:
            return
        try:
            with self.traced():
                self.done(await self._client.run(call))
        except BaseException as error:
            self.ended(error)
            raise
        self.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abandoned(error)
        elif self.committed is None:
            await self.commit()
