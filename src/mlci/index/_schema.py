"""Validate the facts in a model file's header before use: types, lengths, ranges and order.

The JSON may come from anywhere; an error names the first value that is wrong. A recipe may keep more in its card than
is validated here. The schema is written for `pydantic_core`, because building equivalent pydantic models takes a tenth
of a second.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as kinds

from mlci.base.complaints import complaint
from mlci.base.names import FORMER_RECIPES, RECIPES

Schema = kinds.CoreSchema
STRICT = kinds.CoreConfig(strict=True, allow_inf_nan=False)
TOLERANCE = 1e-9  # a rate of 1 may exceed it by rounding
ANYTHING, BOOL = kinds.any_schema(), kinds.bool_schema()
NAME = kinds.str_schema(min_length=1, max_length=200)
TEXT = kinds.str_schema(max_length=20_000)
COUNT = kinds.int_schema(ge=0, le=10**12)
NUMBER = kinds.float_schema()
SCORE = kinds.float_schema(ge=-1e9, le=1e9)
SHARE = kinds.float_schema(ge=0, le=1)
RATE = kinds.float_schema(ge=-TOLERANCE, le=1 + TOLERANCE)
VERSION = kinds.literal_schema([0, 9, 10])  # 0: unknown


def _list(of: Schema, least: int = 0, most: int | None = None) -> Schema:
    return kinds.list_schema(of, min_length=least, max_length=most)


def _named(of: Schema, least: int = 0, most: int | None = None) -> Schema:
    return kinds.dict_schema(NAME, of, min_length=least, max_length=most)


def _or_none(schema: Schema) -> Schema:
    return kinds.nullable_schema(schema)


def _facts(
    needed: Mapping[str, Schema],
    optional: Mapping[str, Schema] | None = None,
    *,
    fits: Callable[[dict[str, Any]], None] | None = None,
) -> Schema:
    """Return the schema of named facts; `fits` raises ValueError if they are inconsistent."""
    fields = {name: kinds.typed_dict_field(schema, required=True) for name, schema in needed.items()}
    fields |= {name: kinds.typed_dict_field(schema, required=False) for name, schema in (optional or {}).items()}
    found = kinds.typed_dict_schema(fields, config=STRICT)
    if fits is None:
        return found

    def checked(facts: dict[str, Any]) -> dict[str, Any]:
        fits(facts)
        return facts

    return kinds.no_info_after_validator_function(checked, found)


def _rising(values: list[float]) -> bool:
    return all(low <= high for low, high in pairwise(values))


def _vocabulary_fits(facts: dict[str, Any]) -> None:
    tokens, versions, depths = facts["tokens"], facts["versions"], facts["depths"]
    if len(versions) != len(tokens) or len(facts.get("support", ())) not in (0, len(tokens)):
        raise ValueError("as many versions (and numbers of admissions) as tokens are needed")
    alone = len(set(tokens)) == len(tokens) or len(set(zip(versions, tokens))) == len(tokens)
    if not alone or len(set(depths)) != len(depths):
        raise ValueError("a token or a depth comes twice")


VOCABULARY = _facts(
    {
        "tokens": _list(kinds.str_schema(min_length=1, max_length=40), most=1_000_000),
        "versions": _list(VERSION),
        "depths": _list(kinds.int_schema(ge=1, le=40), 1, 40),
        "max_codes": kinds.int_schema(ge=1, le=100_000),
    },
    {
        "ignored": _list(NAME, most=100_000),
        "primary": BOOL,
        "number_of_codes": BOOL,
        "poa": kinds.literal_schema(["all", "only"]),
        "support": _list(COUNT),
    },
    fits=_vocabulary_fits,
)


def _steps_rise(facts: dict[str, Any]) -> None:
    if len(facts["score"]) != len(facts["risk"]):
        raise ValueError("as many risks as scores are needed")
    if not (_rising(facts["score"]) and _rising(facts["risk"])):
        raise ValueError("scores and risks must not fall")


STEPS = _facts({"score": _list(SCORE, 1, 20_000), "risk": _list(SHARE)}, fits=_steps_rise)


def _smooth_rises(facts: dict[str, Any]) -> None:
    score, logit = facts["score"], facts["logit"]
    if not len(score) == len(logit) == len(facts["error"]):
        raise ValueError("as many log-odds and errors as scores are needed")
    if len(set(score)) != len(score) or not (_rising(score) and _rising(logit)):
        raise ValueError("scores must rise and log-odds must not fall")


SMOOTH = _facts(
    {
        "score": _list(SCORE, 2, 1000),
        "logit": _list(kinds.float_schema(ge=-1e3, le=1e3)),
        "error": _list(kinds.float_schema(ge=0, le=1e3)),
    },
    fits=_smooth_rises,
)


def _events_fit(facts: dict[str, Any]) -> None:
    if facts["positives"] > facts["n"]:
        raise ValueError("more events than admissions")


EVENTS = _facts(
    {"positives": COUNT, "n": COUNT, "low": _or_none(RATE), "high": _or_none(RATE)},
    {"weighted": _or_none(RATE)},
    fits=_events_fit,
)


def _tail_fits(facts: dict[str, Any]) -> None:
    if facts["tail"] > facts["n"]:
        raise ValueError("more admissions above the cutoff than there are")


CUTOFF = _facts(
    {
        "score": SCORE,
        "certificate": RATE,
        "tail": COUNT,
        "n": kinds.int_schema(ge=1, le=10**12),
        "contrasts": _list(_facts({"outcome": NAME, "above": EVENTS, "below": EVENTS}), most=1000),
    },
    {"held_out": _or_none(RATE), "left_out": _named(TEXT), "weighted": _or_none(RATE)},
    fits=_tail_fits,
)

HELD_OUT = _facts(
    {
        **dict.fromkeys(("n", "positives"), COUNT),
        **dict.fromkeys(("auroc", "auroc_low", "auroc_high", "expected", "observed"), SHARE),
        **dict.fromkeys(("observed_low", "observed_high"), RATE),
    },
    {"slope": _or_none(NUMBER)},
)

CELL = _or_none(kinds.union_schema([kinds.str_schema(), kinds.int_schema(), NUMBER]))
RECORD = _facts(
    {
        "summary": TEXT,
        "tables": _list(
            _facts({"title": TEXT, "columns": _list(TEXT, most=100), "rows": _list(_list(CELL), most=10_000)}), most=100
        ),
        "curves": _list(_facts({"title": TEXT, "unit": TEXT, "lines": _named(_list(NUMBER)), "kept": COUNT}), most=100),
    }
)

# Codes of the training admissions of one ICD version.
MAKEUP = _facts({"admissions": COUNT, "codes": COUNT, "squares": COUNT, "categories": _named(COUNT, most=100_000)})

# What the fit knew of its data apart from the counts.
ABOUT = _facts({"data": TEXT, "dates": TEXT, "licence": TEXT, "limits": _list(TEXT, most=100)})

# Admissions that missing outcomes left out of the choice of the cutoff (`_missing_outcomes`); empty if there are few.
MASKED = _facts({"known": COUNT, "of": COUNT, "missing": _named(COUNT), "events": _named(_list(COUNT, 2, 2))})

# The part of the card that every recipe has.
CARD = _facts(
    {
        "recipe": kinds.literal_schema([*RECIPES, *FORMER_RECIPES]),
        "seed": kinds.int_schema(ge=-(2**63), lt=2**64),
        "config": _named(ANYTHING),
    },
    {
        "source": TEXT,
        "record": _or_none(RECORD),
        "weights": _named(NUMBER),
        "bandwidth": _or_none(kinds.float_schema(gt=0, lt=1e9)),
        "admissions": _named(COUNT),
        "positives": _named(_or_none(COUNT)),
        "validation": _named(HELD_OUT),
        "about": _or_none(ABOUT),
        "makeup": kinds.dict_schema(kinds.literal_schema(["0", "9", "10"]), MAKEUP),
        "tokens_of_one_patient": COUNT,
        "survey": _facts({}, {"weights": NAME, "worth": COUNT, "weightless": COUNT, "cluster": NAME}),
        "numbers": _named(kinds.literal_schema(["poisson", "gaussian"])),
        "look_back": kinds.float_schema(ge=0),
        "needed": _named(_facts({"admissions": COUNT, "events": COUNT})),
        "no_part_in_cutoff": _named(TEXT),
        "masked": kinds.union_schema([(MASKED, "counts"), (_named(COUNT, most=0), "empty")]),
        **dict.fromkeys(("fitted_on", "judged_on"), TEXT),
        "in_sample": _list(NAME, most=1000),
        "recalibrated": _facts({"source": TEXT, "admissions": COUNT}, {"positives": _named(_or_none(COUNT))}),
        "updated": _facts({"shares": _named(SHARE), "unexplained": _named(NUMBER)}),
    },
)


def _parts_fit(facts: dict[str, Any]) -> None:
    if not _rising(facts["quantiles"]):
        raise ValueError("quantiles must not fall")
    named = {
        *facts["curves"],
        *facts.get("bands", ()),
        *facts["card"].get("validation", ()),
        *(contrast["outcome"] for contrast in facts["cutoff"]["contrasts"]),
    }
    if not named <= set(facts["outcomes"]):
        raise ValueError("a curve or a contrast belongs to no outcome")


FACTS = _facts(
    {
        "version": NAME,
        "vocabulary": VOCABULARY,
        "icd_versions": _list(VERSION, most=3),
        "outcomes": _named(TEXT, 1, 1000),
        "quantiles": _list(SCORE, 2, 20_000),
        "curves": _named(kinds.union_schema([(SMOOTH, "smooth"), (STEPS, "steps")])),
        "cutoff": CUTOFF,
        "card": CARD,
    },
    {"bands": _named(SMOOTH)},
    fits=_parts_fit,
)


def check_facts(facts: Any) -> None:
    """Check the facts of a model file; a ValueError names the value that is wrong and what is allowed."""
    try:
        SchemaValidator(FACTS).validate_python(facts)
    except ValidationError as error:
        raise ValueError(
            complaint(error.errors(include_url=False, include_input=False, include_context=False))
        ) from None
