"""When a run is given up because of outages: by the time in which it stored nothing, never by their number."""

from clew.engine.outages import FEW, LONGEST_PAUSE, PATIENCE_SECONDS, SHORTEST_PAUSE, Outages


def test_any_number_of_outages_is_survived_while_something_is_stored() -> None:
    outages = Outages()
    for n in range(10_000):
        outages.met(stored=n, at=n * 60.0)
        assert not outages.are_too_long(now=n * 60.0 + 5)


def test_any_number_of_outages_is_survived_within_the_time() -> None:
    outages = Outages()
    for n in range(1000):
        outages.met(stored="the same", at=n * PATIENCE_SECONDS / 1000)
        assert not outages.are_too_long(now=n * PATIENCE_SECONDS / 1000)


def test_a_run_that_stores_nothing_for_long_is_given_up() -> None:
    outages = Outages()
    for n in range(FEW + 1):
        outages.met(stored="the same", at=n * PATIENCE_SECONDS)
    assert outages.are_too_long(now=(FEW + 1) * PATIENCE_SECONDS)
    outages.met(stored="more", at=(FEW + 1) * PATIENCE_SECONDS)
    assert not outages.are_too_long(now=(FEW + 1) * PATIENCE_SECONDS)


def test_one_outage_may_take_a_day() -> None:
    outages = Outages()
    outages.met(stored="the same", at=0)
    assert not outages.are_too_long(now=86_400)


def test_the_pause_grows_until_something_is_stored() -> None:
    outages = Outages()
    pauses = []
    for _ in range(20):
        pauses.append(outages.pause)
        outages.met(stored="the same", at=0)
    assert pauses[0] == SHORTEST_PAUSE
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    outages.met(stored="more", at=0)
    assert outages.pause == 2 * SHORTEST_PAUSE
