"""The transport that ends connections in order."""

from __future__ import annotations

from skep.http.connection.transport import ClosingInOrder
from tests.support.connection import Reader, Recorder


def test_a_client_that_ends_the_connection_is_gone() -> None:
    recorder, reader = Recorder(), Reader()
    transport = ClosingInOrder(recorder, reader)
    assert not transport.is_gone

    recorder.close()

    assert transport.is_gone


def test_a_client_whose_connection_we_end_is_gone_only_when_it_is_lost() -> None:
    recorder, reader = Recorder(), Reader()
    transport = ClosingInOrder(recorder, reader)

    transport.close()
    assert recorder.closed
    assert not transport.is_gone
    reader.is_lost = True

    assert transport.is_gone
