"""Map standard concepts (SNOMED) back to ICD, with the maps of the OMOP vocabulary.

The vocabulary maps many ICD codes to one standard concept, so the way back is not unique. If all codes of a concept
share one category (the first three characters), the category is certain. The code with the least further detail is then
taken: a code rather than the category's heading, the shortest one, and among these the last (9 means "unspecified"). A
concept whose codes are in several categories is not mapped back.
"""

from typing import Any

import ibis
import ibis.expr.types as ir
from ibis import _

COLUMNS = {"concept_id_1": "int64", "concept_id_2": "int64", "relationship_id": "string"}


def taken_back(tables: Any, vocabularies: tuple[str, ...]) -> ir.Table:
    """Return one row per standard concept of the vocabularies' codes: `standard`, `back` (a code), `categories`."""
    related = tables["concept_relationship"]
    pairs = ibis.union(
        related.filter(_.relationship_id == "Maps to").select(icd=_.concept_id_1, standard=_.concept_id_2),
        related.filter(_.relationship_id == "Mapped from").select(icd=_.concept_id_2, standard=_.concept_id_1),
        distinct=True,
    )
    codes = tables["concept"].filter(_.vocabulary_id.isin(vocabularies))
    codes = codes.select(icd=_.concept_id, back=_.concept_code.upper().replace(".", ""))
    found = pairs.join(codes, "icd").mutate(category=_.back.substr(0, 3), length=_.back.length())
    order = [ibis.ifelse(found.length == 3, 1, 0), found.length, ibis.desc(found.back)]
    best = ibis.row_number().over(ibis.window(group_by="standard", order_by=order))
    counts = found.group_by("standard").agg(categories=_.category.nunique())
    return found.mutate(best=best).filter(_.best == 0).select("standard", "back").join(counts, "standard")
