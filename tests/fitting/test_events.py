import time

from mlci.fitting._events import Clock


def test_time_left_does_not_count_the_start(monkeypatch):
    now = iter((0.0, 10.0, 10.5, 11.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    events = []
    clock = Clock(10, events.append)
    for epoch in (1, 2, 3):
        clock.tell("stage 1, mortality", epoch, 10, {"mortality": 0.25})
    assert [event.eta for event in events] == [90.0, 4.0, 3.5]
    assert events[0].text == "stage 1, mortality, epoch 1/10: mortality 0.2500"


def test_nothing_is_left_at_the_end():
    events = []
    clock = Clock(0.3, events.append)
    for epoch in (1, 2, 3):
        clock.tell("distil", epoch, 3, {}, work=0.1)
    assert events[0].eta > 0
    assert events[-1].eta == 0
