from __future__ import annotations

import pytest

from services.ingress.batches.files import checked_after
from services.ingress.batches.objects import ApiError
from services.ingress.batches.store import new_file_id


def test_a_page_begins_behind_the_id_of_a_file_alone() -> None:
    file_id = new_file_id(f"{7:032x}")
    assert [checked_after(each) for each in ("", file_id)] == ["", file_id]
    with pytest.raises(ApiError, match="after must be the id of a file, got 'nosuch'"):
        checked_after("nosuch")
