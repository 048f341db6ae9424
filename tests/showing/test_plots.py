import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mlci.base.errors import InputError
from mlci.base.names import label
from mlci.index.estimator import MLCI
from mlci.judging import curves, theory
from mlci.showing import plots
from mlci.showing.plots._style import INK
from toys import CODES, random_model, random_table

NAMES = ["mortality", "mortality_30d", "long_stay", "icu_transfer"]


def explained_table():
    index = MLCI()
    index.model_ = random_table()
    return index.explain(["A001", "A0012X4A", "I012", "B002", "J021", *CODES[40:70]], icd_version=10)


def draw(name: str):
    rng = np.random.default_rng(0)
    score = rng.gamma(2, 1, 1_000)
    outcomes = (0.8 * score[:, None] + rng.logistic(size=(1_000, 4)) > [4, 3.5, 1.5, 3]).astype(float)
    outcomes[:50, 2] = np.nan
    fit = curves.isotonic(score, outcomes[:, 0])
    if name == "risk_curve":
        rates = curves.binned(score, outcomes[:, 0], levels=np.linspace(0.04, 0.96, 24))
        return plots.risk_curve("mortality", rates, fit, cutoff=3.0)
    if name in ("binned", "isotonic"):
        return plots.risk_curves(curves.risk_curves([score, score**2], outcomes, NAMES), name, title="MIMIC-IV")
    if name == "score_distribution":
        edges = np.linspace(0, 8, 31)
        shares = [np.histogram(score[outcomes[:, 0] == value], edges)[0] / 500 for value in (0, 1)]
        return plots.score_distribution("mortality", edges, shares, (900, 100), cutoff=3.0)
    if name == "threshold_scan":
        return plots.threshold_scan(theory.scan(score, np.nan_to_num(outcomes)), NAMES)
    if name == "singular_values":
        return plots.singular_values([1.4, 1.05, 0.8, 0.5])
    if name == "benchmark":
        cells = [(model, outcome, rng.random()) for model in ("MLCI", "Elixhauser", "CCI+ECI") for outcome in NAMES]
        frame = pd.DataFrame(cells, columns=["model", "outcome", "value"])
        return plots.benchmark(frame.assign(metric="dcorr", low=frame.value - 0.1, high=frame.value + 0.1), "dcorr")
    if name == "calibration":
        risk = fit(score)
        groups = curves.binned(risk, outcomes[:, 0], bins=10)
        return plots.calibration("mortality", groups, curves.calibration_curve(risk, outcomes[:, 0]))
    if name == "one_benchmark":
        names = ["MLCI", "Elixhauser flags, age, sex", "MLCI without † codes"]
        frame = pd.DataFrame({"model": names, "outcome": "mortality", "metric": "auroc", "value": [0.9, 0.8, 0.7]})
        return plots.benchmark(frame.assign(low=frame.value - 0.1, high=frame.value + 0.1), "auroc")
    if name == "influence":
        names = ["I50.9 Heart failure, unspecified, " * 3, "Z37", "I46.9 †"]
        return plots.influence(names, np.array([0.5, -0.2, 0.1]), marked=[False, False, True])
    if name == "attrition":
        rule = "Age of at least 18 years at admission, and not born during the stay, as the table of patients says"
        return plots.attrition([("Admissions in the source", 0, 1_200_345), (rule, 200_345, 1_000_000)])
    if name == "waterfall":
        return plots.waterfall(explained_table())
    return plots.learning_curves({"training": [0.1, 0.2, 0.3], "validation": [0.1, 0.2, 0.1]}, best=2)


FIGURES = [
    *("risk_curve", "binned", "isotonic", "score_distribution", "threshold_scan", "singular_values"),
    *("benchmark", "one_benchmark", "calibration", "attrition", "influence", "waterfall", "learning_curves"),
]


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_clipped_and_titles_do_not_touch(name):
    figure = draw(name)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert -0.02 <= drawn.x0 <= drawn.x1 <= width + 0.02
    assert -0.02 <= drawn.y0 <= drawn.y1 <= height + 0.02
    titles = [axis._left_title.get_window_extent() for axis in figure.axes if axis.get_title("left")]
    assert not any(a.overlaps(b) for i, a in enumerate(titles) for b in titles[:i])


@pytest.mark.parametrize("name", FIGURES)
def test_svg_is_well_formed_small_and_has_a_text_alternative(name):
    text = plots.svg(draw(name), prefix="x", alternative='5 < 6 & "so on"')
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label") == '5 < 6 & "so on"'
    assert all(one.get("id").startswith("x-") for one in root.iter() if one.get("id"))
    ids = {one.get("id") for one in root.iter() if one.get("id")}
    used = {value[1:] for one in root.iter() for key, value in one.attrib.items() if key.endswith("href")}
    assert used <= ids
    assert INK not in text  # the page's own text colour instead
    assert "DejaVu" not in text  # and its font
    assert len(text) < 150_000
    assert text == plots.svg(draw(name), prefix="x", alternative='5 < 6 & "so on"')


def test_every_interval_of_a_calibration_lies_inside_its_axes():
    figure = draw("calibration")
    (axis,) = figure.axes
    top = max(float(segment[:, 1].max()) for bars in axis.containers for segment in bars[2][0].get_segments())
    assert axis.get_ylim()[1] >= top
    assert axis.get_xlim() == axis.get_ylim()


def test_the_fit_lies_inside_its_axes_where_it_rises_above_every_interval():
    """Its last step may be a few admissions that all had the outcome."""
    score, died = np.arange(40.0), np.arange(40) >= 34
    (axis,) = plots.risk_curve("mortality", curves.binned(score, died, bins=4), curves.isotonic(score, died)).axes
    assert axis.get_ylim()[1] >= axis.lines[0].get_ydata().max()


def test_colours_are_the_page_s_where_it_is_dark():
    text = plots.svg(draw("risk_curve"), prefix="x", alternative="x")
    assert "var(--0072B2, #0072B2)" in text
    assert "--0072B2: #56B4E9;" in plots.dark_style()
    assert "#0072b2" not in text.lower().replace("var(--0072b2, #0072b2)", "")


def test_a_million_admissions_draw_as_small_as_a_thousand():
    score = np.arange(1_000_000.0)
    scan = theory.scan(score, (score > 900_000).astype(float))
    text = plots.svg(plots.threshold_scan(scan, ["mortality"]), prefix="x", alternative="x")
    assert len(text) < 60_000


def test_ticks_of_few_admissions_are_read_as_percentages():
    scan = theory.scan([1.0, 2.0, 3.0, 4.0], np.array([0.0, 1.0, 0.0, 1.0]))
    text = plots.svg(plots.threshold_scan(scan, ["mortality"]), prefix="x", alternative="x")
    assert "mathdefault" not in text
    assert {"30%", "50%", "70%"} <= set(re.findall(r">([\d.]+%)<", text))


def test_a_long_name_is_shortened_where_it_would_be_cut_off():
    name = "unplanned_readmission_within_ninety_days_of_discharge_to_any_hospital"
    values = np.array([[0.8, 0.7], [0.7, 0.6], [0.9, 0.8]])
    figure = plots.estimates("auroc", name, ["MLCI", "Elixhauser flags, age, sex"], *values)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axis,) = figure.axes
    assert axis.get_title("left").endswith("…")
    assert figure.get_tightbbox(canvas.get_renderer()).x1 <= figure.get_figwidth() + 0.02
    short = plots.estimates("auroc", "mortality", ["MLCI", "Elixhauser flags, age, sex"], *values)
    assert short.axes[0].get_title("left") == "In-hospital mortality"


def test_no_share_of_admissions_is_above_100():
    shares = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    (axis,) = plots.score_distribution("mortality", np.array([0.0, 1.0, 2.0]), shares, (3, 1)).axes
    assert max(axis.get_yticks()) == 1
    (axis,) = plots.score_distribution("mortality", np.array([0.0, 1.0, 2.0]), [shares[0] / 2.1] * 2, (3, 1)).axes
    assert axis.get_ylim()[1] == pytest.approx(1.25 * 1.05 / 2.1)  # ticks do not widen it


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_save_writes_the_format_of_the_name(tmp_path, ending):
    plots.save(draw("singular_values"), tmp_path / f"figure.{ending}")
    head = (tmp_path / f"figure.{ending}").read_bytes()[:8]
    assert {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[ending] in head


def test_the_last_tick_of_a_calibration_is_not_cut_off():
    risk = np.array([0.2, 0.97])
    groups = curves.Rates(risk, risk, risk - 0.02, np.minimum(risk + 0.03, 1), np.array([100, 100]), 100 * risk)
    figure = plots.calibration("mortality", groups, curves.CalibrationCurve(risk, risk))
    figure.draw_without_rendering()
    [last] = [text for text in figure.axes[0].get_xticklabels() if text.get_text() == "100%"]
    assert last.get_window_extent().x1 < figure.bbox.x1


def test_labels_are_words():
    assert label("mortality_30d") == "30-day mortality"
    assert label("own_outcome") == "Own outcome"


def test_a_waterfall_ends_at_the_score():
    explanation = explained_table()
    axis = plots.waterfall(explanation, most=8).axes[0]
    assert len(axis.patches) == 9  # the ninth is all the others
    last = axis.patches[-1]
    np.testing.assert_allclose(last.get_x() + last.get_width(), explanation.score)
    assert axis.get_yticklabels()[-1].get_text() == "This admission"
    said = " ".join([axis.get_title("left"), *(text.get_text() for text in axis.texts)])
    assert "−" in said
    assert "-" not in said
    index = MLCI()
    index.model_ = random_model()
    with pytest.raises(InputError, match="add up"):
        plots.waterfall(index.explain(["A000"]))


def test_numbers_in_texts_of_a_figure_keep_their_digits():
    figure = draw("threshold_scan")
    figure.axes[0].set_yticks([0.0125, 0.175])
    text = plots.svg(figure, prefix="x", alternative="the best is 0.2025")
    root = ElementTree.fromstring(text)
    written = {one.text for one in root.iter() if one.tag.endswith("text")}
    assert {"0.0125", "0.1750"} <= written
    assert root.get("aria-label") == "the best is 0.2025"


@pytest.mark.parametrize("unrelated", np.arange(0.02, 0.5, 0.02))
def test_no_number_above_a_bar_is_struck_out(unrelated):
    figure = plots.singular_values([1.4, 1.05, 0.8, 0.5], unrelated=unrelated)
    figure.draw_without_rendering()
    (axis,) = figure.axes
    (dotted,) = axis.lines
    height = axis.transData.transform((0, dotted.get_ydata()[0]))[1]
    boxes = [text.get_window_extent() for text in axis.texts]
    assert [text.get_text() for text in axis.texts] == ["50%", "28%", "16%", "6%"]
    assert not any(box.y0 < height < box.y1 for box in boxes)


@pytest.mark.parametrize("ends", [(52, 74), (61.2, 61.9), (8, 900)])
def test_a_funnel_has_ticks_even_if_its_groups_are_alike(ends):
    point = {"group": "North", "effective": np.mean(ends), "ratio": 1.0, "verdict": "as expected", "ranked": True}
    line = pd.DataFrame({"effective": ends, "low95": 0.8, "high95": 1.2, "low998": 0.7, "high998": 1.4})
    figure = plots.funnel(pd.DataFrame([point]), line)
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    ticks = [tick.get_text() for tick in figure.axes[0].get_xticklabels() if low <= tick.get_position()[0] <= high]
    assert 2 <= len(set(ticks)) <= 8
