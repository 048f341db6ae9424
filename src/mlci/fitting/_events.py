"""What a fit tells while it runs: one event after each epoch, with the time that is left. Needs no torch."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """An epoch of a fit, or another of its rounds, is over."""

    step: str  # which part of the fit: "stage 1, mortality" or "risks, member 2/5"
    epoch: int
    epochs: int  # of this step
    figures: Mapping[str, float]  # what the epoch reached, by name
    seconds: float  # since the fit began, in this process
    eta: float  # seconds left
    unit: str = "epoch"  # what this step's rounds are

    @property
    def text(self) -> str:
        reached = ", ".join(f"{name} {value:.4f}" for name, value in self.figures.items())
        rounds = f", {self.unit} {self.epoch}/{self.epochs}" if self.epochs > 1 else ""
        return f"{self.step}{rounds}" + (f": {reached}" if reached else "")


class Clock:
    """Makes events, with the time left by the pace since the first of them: before it, libraries had to start.

    Models that are trained side by side tell at nearly the same time, which says nothing of their pace: until a tenth
    of the time lies behind the first event, all of it counts.

    `work` is how much there is to do, in whatever unit each call of `tell` then says that it did. Threads that tell at
    the same time wait for each other.
    """

    def __init__(self, work: float, on_event: Callable[[Event], None] | None) -> None:
        self.left, self.done, self.on_event = work, 0.0, on_event
        self.start, self.lock = time.perf_counter(), threading.Lock()
        self.first = (0.0, 0.0)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def tell(
        self, step: str, epoch: int, epochs: int, figures: Mapping[str, float], *, work: float = 1, unit: str = "epoch"
    ) -> None:
        with self.lock:
            self.done, self.left, seconds = self.done + work, max(self.left - work, 0.0), self.seconds
            then, before = self.first
            if not before:
                self.first = (seconds, self.done)
            if seconds - then < seconds / 10:
                then, before = 0.0, 0.0
            eta = (seconds - then) / (self.done - before) * (self.left if self.left > 1e-9 else 0.0)
            if self.on_event:
                self.on_event(Event(step, epoch, epochs, dict(figures), seconds, eta, unit))
