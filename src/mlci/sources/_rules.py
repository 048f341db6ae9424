"""Rules that all hospital databases share, as Ibis expressions: elapsed time, order of codes, common outcomes.

Engines differ in what "days between" means (calendar boundaries or elapsed time, rounded or truncated), so all
durations are whole elapsed seconds. If a required time is missing, an outcome is null, never false.
"""

from typing import Any

import ibis

from mlci.sources._gathered import BELOW, FIRST, LAST

Expression = Any  # a column, or a deferred one (`ibis._`)

HOUR = 3600
DAY = 24 * HOUR


def elapsed(later: Expression, earlier: Expression) -> Expression:
    """Return whole seconds from `earlier` to `later`.

    >>> elapsed(ibis.timestamp("2020-01-02 01:00:00"), ibis.timestamp("2020-01-01")).to_pyarrow().as_py() == 25 * HOUR
    True
    """
    return later.truncate("s").epoch_seconds() - earlier.truncate("s").epoch_seconds()


def known(value: Expression, when: Expression) -> Expression:
    """Return `value` where `when` is true, with null as false; elsewhere null."""
    return ibis.ifelse(when, value.fill_null(False), ibis.null("boolean"))


def died_within(days: int, death: Expression, admitted: Expression, *, death_day_counts: bool) -> Expression:
    """Return death from 0 to `days` elapsed days after admission, both included; no recorded death is false.

    A date of death without a time of day means midnight. A death on the day of admission is then before the admission,
    which gives false, unless `death_day_counts`.

    >>> death, admitted = ibis.timestamp("2020-01-01"), ibis.timestamp("2020-01-01 14:30:00")  # a date is its midnight
    >>> [died_within(30, death, admitted, death_day_counts=counts).to_pyarrow().as_py() for counts in (False, True)]
    [False, True]
    """
    x = elapsed(death, admitted)
    after = (x >= 0) | same_day(death, admitted) if death_day_counts else x >= 0
    return known(after & (x <= days * DAY), admitted.notnull())


def same_day(first: Expression, second: Expression) -> Expression:
    return first.truncate("D") == second.truncate("D")


def years_between(born: Expression, day: Expression) -> Expression:
    """Count birthdays up to and including a day; a birthday on 29 February is on 1 March in other years.

    >>> years_between(ibis.date("1952-02-29"), ibis.date("2023-02-28")).to_pyarrow().as_py()
    70.0
    """
    early = day.month() * 100 + day.day() < born.month() * 100 + born.day()
    return (day.year() - born.year() - ibis.ifelse(early, 1, 0)).cast("float64")


def stayed_longer(days: int, discharged: Expression, admitted: Expression) -> Expression:
    """Return whether a stay is longer than `days` elapsed days; null if a time is missing or the stay is negative.

    >>> stayed_longer(7, ibis.timestamp("2020-01-08 00:00:01"), ibis.timestamp("2020-01-01")).to_pyarrow().as_py()
    True
    """
    x = elapsed(discharged, admitted)
    return ibis.ifelse(x >= 0, x > days * DAY, ibis.null("boolean"))


def entered_after(hours: int, first: Expression, stays: Expression, admitted: Expression) -> Expression:
    """Return whether the first of `stays` in a unit began more than `hours` after admission; no stay is false."""
    return known(
        elapsed(first, admitted) > hours * HOUR, admitted.notnull() & ((stays.fill_null(0) == 0) | first.notnull())
    )


def placed(code: Expression, position: Expression) -> Expression:
    """Return a code with its position in front: Spark has no ordered aggregation, so the lists are sorted later.

    The position has five digits, because DuckDB stores up to 12 characters, position and code, inline. Positions beyond
    the last possible one count as the last; a position below 0 is marked and refused later.

    >>> placed(ibis.literal("I509"), ibis.literal(2)).to_pyarrow().as_py()
    '10002I509'
    """
    place = bounded(position)
    return ibis.ifelse(place < 0, BELOW, (place + FIRST).cast("string")) + code


def bounded(position: Expression) -> Expression:
    """Return a code's position; a missing one, or one beyond the last possible position, counts as the last.

    >>> bounded(ibis.literal(100_000)).to_pyarrow().as_py() == LAST
    True
    """
    return ibis.least(ibis.coalesce(position, LAST), LAST)


def capped(age: Any) -> Any:
    """Return age in years; 90 for ages over 89, null for negative ages.

    >>> capped(ibis.literal(93)).to_pyarrow().as_py()
    90.0
    """
    return ibis.cases((age > 89, 90.0), (age >= 0, age.cast("float64")))


def deaths_before(death: Any, admitted: Any) -> dict[str, Any]:
    """Return whether a death is before its admission: on the same day (a date without time), or on an earlier day."""
    before = elapsed(death, admitted) < 0
    return {"died_on_the_day": before & same_day(death, admitted), "died_before": before & ~same_day(death, admitted)}
