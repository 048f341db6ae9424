"""What the columns of tables are called on pages and figures."""

LABELS = {
    "mortality": "In-hospital mortality",
    "mortality_30d": "30-day mortality",
    "long_stay": "Long stay",
    "icu_transfer": "ICU transfer",
    "dcorr": "Distance correlation",
    "rank_dcorr": "Distance correlation of ranks",
    "auroc": "AUROC",
    "mi": "Mutual information (nats)",
    "nhsic": "nHSIC",
}


def label(name: str) -> str:
    """A column's name as a person would write it."""
    return LABELS.get(name) or name.replace("_", " ").capitalize()


def words(name: str) -> str:
    """The same inside a sentence: ICU keeps its capitals, others begin small."""
    text = label(name)
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
