"""`mlci explain`: what each code adds to the score, for typed codes or for every admission of a file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from mlci.cli._counting import counting
from mlci.cli._model import MODEL
from mlci.cli._options import check_output, columns, counted, display_name, force, quiet

if TYPE_CHECKING:
    from mlci.codes.admissions import Admissions
    from mlci.index._explain import Explanation
    from mlci.index.model import Model

TITLE_WIDTH = 36  # characters of a code and its title


@click.command("explain", short_help="Explain a score: what each code adds to it.")
@click.argument("model", type=MODEL)
@click.argument("words", nargs=-1, required=True, metavar="CODES...|ADMISSIONS")
@click.option(
    "-o", "--output", type=click.Path(), help="File with a row for each code: .parquet, .csv, .xlsx, or - for CSV."
)
@click.option("--age", type=float, help="Age in years, for typed codes, if the risks of the model use it.")
@click.option("--sex", type=click.Choice(["F", "M"]), help="Sex, for typed codes, if the risks of the model use it.")
@columns
@force
@quiet
def command(model, words, output, age, sex, force, quiet, **column_options) -> None:
    """Explain a score: what each code adds to it, and to the log-odds of each outcome.

    MODEL is a model file, or the name of a ready-made index (`mlci models`), such as us2010.

    CODES are the codes of one admission: mlci explain us2010 I50.9 N17.9. Instead of codes, give ADMISSIONS, a file as
    for `mlci score`; -o then gets a row for each code of each admission. For the recipe table, the rows add up to the
    score.
    """
    from pathlib import Path

    from mlci.base.tablefile import STANDARD, is_sheet

    alone = words[0] if len(words) == 1 else ""
    if alone == STANDARD or is_sheet(alone) or alone.lower().endswith((".parquet", ".pq")) or Path(alone).is_file():
        _file(model, alone, output, age, sex, force, quiet, column_options)
        return
    if column_options["id"] or column_options["codes"] or column_options["restore_zeros"]:
        raise click.UsageError("--id, --codes and --restore-zeros need a file of admissions, not typed codes.")
    _typed(model, "\n".join(words), output, age, sex, force, quiet, column_options["icd_version"])


def _file(model, source, output, age, sex, force, quiet, column_options) -> None:
    """Explain every admission of a file."""
    from pathlib import Path

    from mlci.base.errors import InputError
    from mlci.index.explaining import explain_file
    from mlci.index.model import load_model

    if output is None:
        raise click.UsageError("a file of admissions needs -o: mlci explain MODEL ADMISSIONS -o why.csv.")
    if age is not None or sex is not None:
        raise click.UsageError("--age and --sex need typed codes, not a file of admissions.")
    if source != "-" and not Path(source).is_file():
        raise InputError(f"{source}: there is no such file.")
    check_output(output, inputs=[model, source], force=force, standard=True)
    index = load_model(model)
    with counting(quiet) as on_batch:
        tally = explain_file(
            index,
            source,
            output,
            on_batch=on_batch,
            on_guess=lambda guess: click.echo(f"{display_name(source)}: {guess}", err=True),
            **column_options,
        )
    if not quiet:
        size = f"{counted(tally.codes, 'code')} of {counted(tally.admissions, 'admission')}"
        click.echo(f"{output}: {size}. {_sums(index)}", err=True)
    for doubt in tally.warnings():
        click.echo(click.style(f"mlci: warning: {doubt}", fg="red", bold=True), err=True)


def _typed(model, text, output, age, sex, force, quiet, icd_version) -> None:
    """Explain one admission whose codes were typed."""
    from mlci.base.tablewriter import writing
    from mlci.codes.admissions import version_or_column
    from mlci.index._people import of_person
    from mlci.index.estimator import load
    from mlci.index.explaining import explained

    if output:
        if age is not None or sex is not None:
            raise click.UsageError("--age and --sex affect only printed risks; leave out -o.")
        check_output(output, inputs=[model], force=force, standard=True)
    index = load(model)
    stated, column = version_or_column(icd_version)
    if column:
        raise click.UsageError("for typed codes, --icd-version must be 9 or 10.")
    admissions, version = _understood(index.model_, text, stated)
    if output:
        with writing(output) as write:
            write(explained(index.model_, admissions))
        if not quiet:
            click.echo(f"{output}: written. {_sums(index.model_)}", err=True)
    else:
        explanation = index.explain(admissions, age=age, sex=sex)
        people = of_person(index.model_.people, age, sex)
        click.echo(_text(index.model_, admissions, explanation, people, version))


def _understood(model: "Model", text: str, stated: int | None) -> tuple["Admissions", int]:
    """Return the typed codes and their ICD version: the stated one, the model's, or that of most codes.

    Print a warning for each piece of text that is not understood; raise an error if that is more than half.
    """
    from mlci.base.errors import InputError
    from mlci.codes import icd
    from mlci.codes.admissions import Admissions
    from mlci.index._typed import typed

    own = [version for version in icd.VERSIONS if version in model.icd_versions]
    versions = [stated] if stated else own or list(icd.VERSIONS)
    readings = {version: typed(model, text, version) for version in versions}
    fits = {version: (len(reading.codes), -len(reading.missed)) for version, reading in readings.items()}
    version = max(versions, key=lambda number: fits[number])
    unique = list(fits.values()).count(fits[version]) == 1
    for missed in readings[version].missed if unique else ():
        suggestions = [f"{_dotted(codes.codes, version)} {codes.title}" for codes in missed.suggestions]
        also = f"; it is an ICD-{missed.other_version} code" if missed.other_version else ""
        also += f" (did you mean {' or '.join(suggestions)}?)" if suggestions else ""
        click.echo(f"mlci: warning: {missed.text!r} is not understood and does not count{also}.", err=True)
    if not fits[version][0]:
        raise InputError("no ICD code was found in the text, so there is no score to explain.")
    if not unique:
        raise InputError("the ICD version of these codes is ambiguous; add --icd-version 9 or --icd-version 10.")
    reading = readings[version]
    if len(versions) > 1:
        click.echo(f"The codes were read as ICD-{version}; change this with --icd-version.", err=True)
    admissions = Admissions.from_lists([[code.code for code in reading.codes]], icd_version=version)
    uncounted = sum(missed.counts for missed in reading.missed)
    if not model.understanding(admissions).diluted(admissions.counts, uncounted).enough[0]:
        raise InputError("fewer than half of the codes are understood, so there is no score to explain.")
    return admissions, version


def _text(model: "Model", admissions: "Admissions", explanation: "Explanation", people, version: int) -> str:
    """Return the explanation of one admission as a table, with its score, percentile and severity above."""
    from textwrap import wrap

    from mlci.base.grids import as_text, grid
    from mlci.base.names import words
    from mlci.showing._words import place

    names = list(explanation.log_odds or ())
    reading = model.read(admissions, people)
    read, risk = model.columns(admissions, reading=reading), model.risks(reading)

    def row(title: str, score: float | None, parts: Mapping[str, float] | None) -> list[str]:
        return [title, "" if score is None else f"{score:+z.3f}", *(f"{parts[name]:+z.2f}" for name in names if parts)]

    rows = [row("without codes", explanation.base_score, explanation.base_log_odds)]
    for effect in explanation:
        title = (effect.title or "") if effect.known else "unknown to the model"
        name = f"{_dotted([effect.code], version)} {title}"
        shortened = name if len(name) <= TITLE_WIDTH else name[: TITLE_WIDTH - 1] + "…"
        rows.append(row(shortened, effect.effect, effect.log_odds))
    rows.append(row("this admission", explanation.score, explanation.log_odds))
    rows += [row(f"{who}, in the risks", None, added) for who, added in explanation.people.items()]
    risks = [f"{100 * risk[name][0]:.1f} %" if name in risk else "" for name in names]
    rows += [["risk", "", *risks]] if names else []
    heads = ["", "score", *(f"({place})" for place in range(1, len(names) + 1))]
    legend = ", ".join(f"({place}) {words(name)}" for place, name in enumerate(names, 1))
    severity = "high severity" if read["high_severity"][0] else "below high severity"
    title = f"Score {explanation.score:z.3f}, percentile {place(read['percentile'][0])}: {severity}."
    notes = wrap(f"Log-odds of {legend}.", 80) if names else []
    return as_text(grid("why", title, heads, rows, *notes, _sums(model))).rstrip()


def _sums(model: "Model") -> str:
    if model.additive:
        return "Rows add up."
    return "Each effect is found by leaving the code out; effects overlap and do not add up."


def _dotted(codes, version: int) -> str:
    from mlci.codes import icd

    return " + ".join(icd.dotted(code, version) for code in codes)
