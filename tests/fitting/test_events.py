import time

from mlci.fitting._events import Clock


def test_the_time_left_does_not_count_the_startup(monkeypatch):
    now = iter((0.0, 10.0, 12.0, 14.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    events = []
    clock = Clock(10, events.append)
    for epoch in (1, 2, 3):
        clock.report("stage 1, mortality", epoch, 10, {"mortality": 0.25})
    assert [event.eta for event in events] == [90.0, 16.0, 14.0]
    assert events[0].text == "stage 1, mortality, epoch 1/10: mortality 0.2500"


def test_two_simultaneous_reports_do_not_make_the_estimate_too_short(monkeypatch):
    now = iter((0.0, 10.0, 10.1))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    events = []
    clock = Clock(10, events.append)
    for member in (1, 2):
        clock.report(f"member {member}", 1, 5, {})
    assert events[1].eta == 10.1 / 2 * 8


def test_no_time_is_left_at_the_end():
    events = []
    clock = Clock(0.3, events.append)
    for epoch in (1, 2, 3):
        clock.report("distil", epoch, 3, {}, work=0.1)
    assert events[0].eta > 0
    assert events[-1].eta == 0
