"""The pages for one admission, for two cases side by side, and about the model.

Pages work without JavaScript; a small script saves reloading.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from mlci.base.errors import InputError
from mlci.codes import icd
from mlci.codes.parse import understand
from mlci.codes.search import search
from mlci.index._people import of_person
from mlci.index.estimator import MLCI
from mlci.index.modelcard import training_events
from mlci.web._addresses import CaseAddress
from mlci.web._answers import chosen_version
from mlci.web._api import found_code, model_card
from mlci.web._case import MOST_TEXT, read_case
from mlci.web._turns import Turns

AGE_LIMIT = 130  # years
FEW, LONGEST = 40, 10  # largest number of codes of a quick request, and of characters of each
BETWEEN, HAS_DIGIT = re.compile(r"[\s,;]+"), re.compile(r"\d")
EXAMPLES = {
    10: {
        "Heart failure with kidney injury": "I50.9 N17.9 I10",
        "Septic shock": "A41.9 R65.21 J96.01 N17.9",
        "A knee replacement": "M17.11 I10 E78.5",
    },
    9: {
        "Heart failure with kidney injury": "428.0 584.9 401.9",
        "Septic shock": "038.9 785.52 518.81 584.9",
        "A knee replacement": "715.96 401.9 272.4",
    },
}

Codes = Annotated[list[str], Query(max_length=1000)]


def pages(index: MLCI, render: Callable[..., str]) -> APIRouter:
    router, turns = APIRouter(include_in_schema=False), Turns()

    @router.get("/")
    async def admission_page(
        codes: str = "",
        q: Annotated[str, Query(max_length=200)] = "",
        off: Codes = [],  # noqa: B006  (read only)
        plus: Codes = [],  # noqa: B006
        pick: Annotated[str, Query(max_length=40)] = "",
        icd_version: Annotated[str, Query(alias="icd", max_length=2)] = "",
        age: Annotated[str, Query(max_length=20)] = "",
        sex: Literal["", "F", "M"] = "",
    ) -> Response:
        version = chosen_version(index.model_, icd_version)
        here = CaseAddress(codes, tuple(off), tuple(plus), version, version_given=bool(icd_version), age=age, sex=sex)
        if pick:
            return RedirectResponse(here.with_codes(f"{codes.strip()} {pick}".strip()), 303)

        def answered() -> Response:
            case, error = None, ""
            try:
                if age and not (re.fullmatch("[0-9]{1,3}", age) and int(age) < AGE_LIMIT):
                    raise InputError(f"The age must be a whole number of years, from 0 to {AGE_LIMIT - 1}.")
                people = of_person(index.model_.people, float(age) if age else None, sex or None)
                case = read_case(index, codes, off=off, plus=plus, version=version, people=people)
            except InputError as problem:
                error = str(problem)
            page = render(
                "one",
                text=codes[:MOST_TEXT],
                q=q,
                found=[found_code(code) for code in search(q, version, 10)],
                version=version,
                age=age,
                sex=sex,
                address=here.plain,
                offers=here.offers,
                translated=here.translated,
                compare_address=here.compared,
                case=case,
                error=error,
                examples=EXAMPLES[version],
                dotted=lambda code: icd.dotted(code, version),
            )
            return HTMLResponse(page, 422 if error else 200)

        # Long lists and words to look up take longer and must not hold up other requests.
        return await turns(answered, short=not q and _are_few_codes(codes, *plus))

    return router


def _are_few_codes(*typed: str) -> bool:
    """Return whether the text is only a few codes: every word is short and has a digit."""
    words = BETWEEN.split(" ".join(typed), FEW)
    return len(words) <= FEW and all(len(word) <= LONGEST and (not word or HAS_DIGIT.search(word)) for word in words)


def comparisons(index: MLCI, render: Callable[..., str]) -> APIRouter:
    router, turns = APIRouter(include_in_schema=False), Turns()

    @router.get("/compare")
    async def compare(
        a: str = "", b: str = "", icd_version: Annotated[str, Query(alias="icd", max_length=2)] = ""
    ) -> Response:
        return await turns(lambda: compared(a, b, icd_version), short=_are_few_codes(a, b))

    def compared(a: str, b: str, icd_version: str) -> Response:
        version = chosen_version(index.model_, icd_version)
        here = CaseAddress("", (), (), version, version_given=bool(icd_version))
        cases, error = [], ""
        try:
            cases = [read_case(index, text, version=version) for text in (a, b)]
        except InputError as problem:
            error = str(problem)
        page = render(
            "compare",
            texts=(a[:MOST_TEXT], b[:MOST_TEXT]),
            cases=cases if all(cases) else [],
            version=version,
            error=error,
            examples=list(EXAMPLES[version].values()),
            case_address=here.plain,
            compare_address=here.compared,
            title_of=lambda code: understood.title if (understood := understand(code, version)) else None,
            dotted=lambda code: icd.dotted(code, version),
        )
        return HTMLResponse(page, 422 if error else 200)

    @router.get("/model")
    def about(request: Request) -> HTMLResponse:
        address = str(request.base_url).rstrip("/")
        return HTMLResponse(
            render("model", card=model_card(index), address=address, examples=EXAMPLES, events=training_events)
        )

    return router
