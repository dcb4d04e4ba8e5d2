"""Who leaves again and again is reported; a round that a client was not asked in says nothing."""

from fedgt.federation.silence import OFTEN, WINDOW, Silences


def after(*stages: str) -> Silences:
    seen = Silences()
    for stage in stages:
        seen = seen.after(["ada", "bob"], {"ada": stage} if stage else {})
    return seen


def test_three_of_six_rounds_at_one_stage_are_often() -> None:
    assert not after("unmask", "unmask").often
    assert dict(after("unmask", "", "unmask", "", "unmask").often) == {"ada": ("unmask", OFTEN)}
    assert not after("unmask", "masked", "keys").often, "another stage each time is a bad network"
    assert dict(after("masked", "unmask", "unmask", "unmask", "unmask", "unmask").often) == {"ada": ("unmask", 5)}


def test_what_is_long_ago_is_forgotten() -> None:
    assert not after("unmask", "unmask", "unmask", *[""] * (WINDOW - 2)).often
    assert after("unmask", "unmask", "unmask", *[""] * WINDOW) == Silences()


def test_who_was_not_asked_is_as_before() -> None:
    seen = after("unmask", "unmask", "unmask")
    assert seen.after(["bob"], {}).often == seen.often
