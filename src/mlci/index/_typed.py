"""Parse typed text into codes: those of the ICD tables, and local codes of a hospital that a model was trained on."""

from mlci.codes.parse import Parsed, read
from mlci.index.model import Model


def typed(model: Model, text: str, version: int) -> Parsed:
    """Return the codes in a text of an ICD version, and the parts that were not understood.

    >>> from mlci.index.estimator import load
    >>> [code.code for code in typed(load("us2010").model_, "I50.9; acute kidney failure N17.9", 10).codes]
    ['I509', 'N179']
    """
    vocabulary, deepest = model.vocabulary, max(model.vocabulary.depths)

    def seen(code: str) -> bool:
        """Return whether the model was trained on exactly this code, which may be a hospital's local code."""
        return bool(code) and len(code) <= deepest and any(vocabulary.has(own, code) for own in (version, 0))

    return read(text, version, seen=seen)
