"""The body of an answer in pieces, as they come. The buffers of a piece follow each other, and are written without joining them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

Data = bytes | bytearray | memoryview
Piece = Sequence[Data]
Pieces = AsyncGenerator[Piece, None]
