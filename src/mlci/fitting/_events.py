"""Progress events of a fit: one after each epoch, with an estimate of the time left. Needs no torch."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """The end of an epoch, or of another round, of a fit."""

    step: str  # which part of the fit: "stage 1, mortality" or "risks, member 2/5"
    epoch: int
    epochs: int  # of this step
    figures: Mapping[str, float]  # results of the epoch, by name
    seconds: float  # since the fit began, in this process
    eta: float  # estimated seconds left
    unit: str = "epoch"  # what a round of this step is called

    @property
    def text(self) -> str:
        reached = ", ".join(f"{name} {value:.4f}" for name, value in self.figures.items())
        rounds = f", {self.unit} {self.epoch}/{self.epochs}" if self.epochs > 1 else ""
        return f"{self.step}{rounds}" + (f": {reached}" if reached else "")


class Clock:
    """Makes events and estimates the time left from the pace since the first event: before it, libraries were loading.

    Models trained in parallel report at nearly the same time, which says nothing about their pace. So until a tenth of
    the elapsed time lies after the first event, the whole time counts.

    `work` is the total amount of work, in the unit in which each call of `report` states how much was done. Calls from
    several threads are serialised.
    """

    def __init__(self, work: float, on_event: Callable[[Event], None] | None) -> None:
        self.left, self.done, self.on_event = work, 0.0, on_event
        self.start, self.lock = time.perf_counter(), threading.Lock()
        self.first = (0.0, 0.0)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def report(
        self, step: str, epoch: int, epochs: int, figures: Mapping[str, float], *, work: float = 1, unit: str = "epoch"
    ) -> None:
        with self.lock:
            self.done, self.left, seconds = self.done + work, max(self.left - work, 0.0), self.seconds
            first_seconds, first_done = self.first
            if not first_done:
                self.first = (seconds, self.done)
            if seconds - first_seconds < seconds / 10:
                first_seconds, first_done = 0.0, 0.0
            eta = (seconds - first_seconds) / (self.done - first_done) * (self.left if self.left > 1e-9 else 0.0)
            if self.on_event:
                self.on_event(Event(step, epoch, epochs, dict(figures), seconds, eta, unit))
