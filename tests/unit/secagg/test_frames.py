"""A large body is written where it is sent from, and is the same frame as one that was packed."""

import mmap

import pytest

from fedgt.secagg.frames import pack, pack_in_place


@pytest.mark.parametrize("length", [0, 7, 2**22 - 1, 2**22 + 5])
@pytest.mark.parametrize("name", ["a", "a longer name, so that the body begins elsewhere"])
def test_a_body_written_in_place_is_that_of_a_packed_frame(length: int, name: str) -> None:
    body = bytes(range(251)) * (length // 251 + 1)

    def fill(memory: memoryview) -> None:
        assert memory.nbytes == length
        assert not any(memory[:1000])
        memory[:] = body[:length]

    assert pack_in_place({"kind": name}, length, fill) == pack({"kind": name}, body[:length])


def test_where_large_pages_cannot_be_asked_for_the_frame_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"abc" * 2**21
    asked = pack_in_place({"kind": "x"}, len(body), lambda memory: memory.__setitem__(slice(None), body))
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert pack_in_place({"kind": "x"}, len(body), lambda memory: memory.__setitem__(slice(None), body)) == asked
