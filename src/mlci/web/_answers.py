"""What an index says of admissions, as the JSON API answers it and the page shows it.

In come an index and lists of codes; out come `Answer`s, equal to `index.score`, `risk` and `explain` to the last digit,
with Charlson and Elixhauser beside them.
"""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from mlci.codes import comorbidity, icd
from mlci.codes.admissions import as_admissions
from mlci.index.estimator import MLCI
from mlci.index.model import Model, Tally

INDICES = {"charlson": "cci_charlson", "elixhauser": "eci_vw"}  # with the weights of the paper


class Effect(BaseModel):
    """What one recorded code did to the score."""

    code: str
    title: str | None = Field(description="official title, where the code is in the ICD table")
    known: bool = Field(description="whether the model knows the code")
    effect: float = Field(
        description="share of the score where `log_odds` is given: shares add up; else score minus score_without"
    )
    score_without: float = Field(description="score of the admission without the code")
    log_odds: dict[str, float] | None = Field(
        description="share of each outcome's log-odds, where the model learned them; null where it did not"
    )


class Category(BaseModel):
    """A comorbidity that some of the codes stand for."""

    words: str
    codes: list[str]


class Clinical(BaseModel):
    """A clinical index; a milder form is dropped where the severer one was found."""

    score: int
    categories: list[Category]


class Answer(BaseModel):
    """One admission."""

    score: float = Field(description="larger means more severe")
    percentile: float = Field(description="share (0 to 100) of the training admissions that score no higher")
    risk: dict[str, float] = Field(description="of each outcome, by the model")
    high_severity: bool = Field(description="whether the score lies at or above the cutoff")
    unknown: list[str] = Field(description="codes that the model does not know")
    charlson: Clinical = Field(description="Charlson index, original weights")
    elixhauser: Clinical = Field(description="Elixhauser index, van Walraven's weights")
    effects: list[Effect] | None = Field(description="one for each code, in order; null unless asked for")


def model_version(model: Model) -> int:
    """The ICD version that codes are of where nobody says it: the model's, or 10 if that has both or none."""
    own = [version for version in model.icd_versions if version in icd.VERSIONS]
    return own[0] if len(own) == 1 else 10


def answers(
    index: MLCI, lists: Sequence[Sequence[str]], *, icd_version: int, explain: bool = False
) -> tuple[list[Answer], list[str]]:
    """An answer for each admission, and what the user should be told about their codes, a sentence each."""
    model, admissions = index.model_, as_admissions(lists, icd_version=icd_version)
    columns = model.columns(admissions)
    known, codes_of = model.known(admissions), [str(code) for code in admissions.values]
    of_code = comorbidity.code_bits(admissions.values, icd_version).tolist()
    bits = comorbidity.drop_milder(comorbidity.Coder()(admissions))
    clinical = comorbidity.scores(bits, list(INDICES.values()))
    found = []
    for row, codes in enumerate(lists):
        recorded = admissions.indices[admissions.offsets[row] : admissions.offsets[row + 1]]
        distinct = list(dict.fromkeys(recorded.tolist()))
        own = {codes_of[code]: of_code[code] for code in distinct}
        found.append(
            Answer(
                score=columns["score"][row],
                percentile=columns["percentile"][row],
                risk={name: columns[f"risk_{name}"][row] for name in model.curves},
                high_severity=columns["high_severity"][row],
                unknown=[codes_of[code] for code in distinct if not known[code]],
                effects=[
                    Effect.model_validate(effect, from_attributes=True)
                    for effect in index.explain(codes, icd_version=icd_version)
                ]
                if explain
                else None,
                **{
                    name: Clinical(score=int(score), categories=_categories(int(bits[row]), own, column))
                    for score, (name, column) in zip(clinical[row], INDICES.items())
                },
            )
        )
    return found, Tally(model).add(admissions, columns["unknown_share"]).doubts()


def _categories(bits: int, of_code: dict[str, int], column: str) -> list[Category]:
    """The categories among an admission's bits that belong to the index, each with its codes."""
    return [
        Category(words=category.words, codes=[code for code, own in of_code.items() if own >> place & 1])
        for place, category in enumerate(comorbidity.rules().categories)
        if bits >> place & 1 and category.column[:4] == column[:4]
    ]
