"""The page of a comparison: whole, without network, and true to its tables."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlci.judging.balance import balance
from mlci.judging.compare import compare
from mlci.showing import plots
from mlci.showing.compare import build
from toys import HOSPITAL_SIZES, six_hospitals


@pytest.fixture(scope="module")
def found():
    cohort = six_hospitals(effect=0.7)
    scores = {"severity": cohort.column("severity"), "age & <b>": cohort.column("age")}
    return compare(cohort, scores, by="hospital", outcome="mortality", overdispersion="none", resamples=20)


@pytest.fixture(scope="module")
def page(found):
    return build(found, command="mlci compare cohort.parquet scores.csv")


def test_it_holds_every_group_figure_and_verdict(page, found):
    assert page.count("<svg") == 4  # a funnel and a caterpillar for each score
    rows = re.findall(r'<tr[^>]*><th scope="row">(\w)</th><td>([\w ]+)</td><td>([\d,]+)</td>', page)
    assert [row[0] for row in rows[: len(HOSPITAL_SIZES)]] == found.of("severity")["group"].tolist()
    assert rows[0] == ("B", "high", "700")
    assert rows[len(HOSPITAL_SIZES) - 1] == ("D", "too few", "60")
    assert "more events than expected in B." in page
    assert "shown but not ranked: D." in page
    assert page.count("Groups without a rank are not drawn.") == 2  # their intervals may reach a thousand
    assert "What the choice of index changes" in page


def test_it_needs_no_network_and_runs_no_script(page):
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "default-src 'none'" in page
    assert "age &amp; &lt;b&gt;" in page
    assert "age & <b>" not in page


def test_of_many_groups_few_are_named_before_the_figures(found):
    table = found.table
    several = pd.concat([table.assign(group=[f"{name}{place}" for name in table["group"]]) for place in range(40)])
    page = build(replace(found, table=several, left_out=1), command="")
    [flags] = re.findall(r'<div class="flags".*?</div>', page, re.DOTALL)
    assert "D8, D9" not in flags
    assert "and 28 others." in flags
    assert "1 admission is left out" in flags
    assert page.count("by chance, fewer than 0.1 would.") == 2  # not 0.0


def test_names_are_shown_as_they_are(recwarn):
    """Whatever a hospital is called: signs of mathematics, of a page and of a script, and letters that no font has."""
    cohort = six_hospitals(effect=2.0)
    names = dict(zip(HOSPITAL_SIZES, ["$x$ & <b>", "北京 $_{", "<script>", "_x", "=1+1", "a" * 80]))
    hospital = [names[name] for name in cohort.column("hospital")]
    table = cohort.table.drop_columns(["hospital"]).append_column("hospital", [hospital])
    cohort = type(cohort)(table, "made", cohort.outcomes)
    scores = {"$a_{": cohort.column("severity")}
    page = build(compare(cohort, scores, by="hospital", outcome="mortality", resamples=5), command="")
    assert "<script" not in page
    assert page.count("北京 $_{") > 3
    assert not recwarn.list


def test_what_is_suppressed_is_not_on_the_page(found):
    page = build(found.suppressed(), command="")
    [row] = re.findall(r'<th scope="row">D</th>.*?</tr>', page)[:1]
    assert "hidden" in row
    events = found.table.loc[found.table["group"] == "D", "events"].iloc[0]
    assert f"<td>{events}</td>" not in row


def test_limits_are_drawn_twice_only_where_they_differ(found):
    models = found.models.assign(phi=2.0, tau2=0.01)
    alike, apart = (
        replace(found, models=models, overdispersion=method).limits("severity") for method in ("none", "additive")
    )
    assert not [name for name in alike if name.startswith("exact")]
    assert len([name for name in apart if name.startswith("exact")]) == 4
    assert (apart["high998"] > apart["high95"]).all()


def test_dotted_lines_are_explained_only_where_some_may_be_drawn(found, page):
    widened = build(replace(found, overdispersion="additive"), command="mlci compare")
    assert "a usual ratio is expected, allowing for usual differences between groups" in widened
    assert "; dotted lines, if any, are the limits of chance alone." in widened
    assert "a usual ratio is expected by chance alone.\n“High”" in page
    assert "dotted lines" not in page


def test_hundreds_of_groups_are_drawn_and_the_outliers_named():
    rng = np.random.default_rng(0)
    ratio = np.sort(rng.uniform(0.5, 1.5, 300))
    points = pd.DataFrame({"ratio": ratio, "low": ratio - 0.2, "high": ratio + 0.2, "shrunk": ratio})
    points["verdict"] = ["low", *["as expected"] * 298, "high"]
    figure = plots.caterpillar([f"H{number}" for number in range(300)], points)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["H0", "H299"]


def test_groups_of_nothing_but_few_events_have_a_page_too():
    """The page reports that no group is ranked, that one has no event, and another a single admission."""
    cohort = six_hospitals()
    rows = np.arange(len(cohort)) % 20 == 0
    part = cohort.where(rows)
    names = part.column("hospital").astype(object)
    names[0] = "alone"
    died = part.labels("mortality")[:, 0].astype(bool) & (names != "F")
    table = part.table.select(["admission_id", "subject_id", "icd_version", "codes", "split"])
    table = table.append_column("mortality", [died]).append_column("hospital", [names.tolist()])
    made = type(cohort)(table, "made", {"mortality": "died"})
    scores = {"severity": part.column("severity"), "age": part.column("age")}
    found = compare(made, scores, by="hospital", outcome="mortality", resamples=20)
    assert set(found.table["verdict"]) == {"too few"}
    assert set(found.table.set_index("group").loc["F", "ratio"]) == {0}
    for shown in (found, found.suppressed()):
        page = build(shown, command="")
        assert "No group has 10 expected events" in page
        assert "of 0 " not in page
        assert "No group has a verdict or a rank by any index." in page
        assert "All indices agree" not in page
        assert "unknown" not in page


def test_two_groups_are_not_said_to_differ_no_more_than_by_chance(found):
    """Of two groups nobody can say what is usual; of more, the page says how the outer ones were treated."""
    cohort = six_hospitals(effect=2.0)
    two = cohort.where(np.isin(cohort.column("hospital"), ["A", "B"]))
    apart = compare(two, {"age": two.column("age")}, by="hospital", outcome="mortality", resamples=0)
    assert apart.models["ranked"].tolist() == [2]
    page = build(apart, command="")
    assert "than expected by chance" not in page
    assert "The true ratios have" in page
    for method, words in (("additive", "winsorised at the outer tenths"), ("shmi", "without the outer tenths")):
        page = build(replace(found, overdispersion=method), command="")
        assert page.count(words) == 3  # once for each score, and in the table of scores


def test_two_treatments_have_a_page_of_their_own():
    cohort = six_hospitals()
    drug = np.where(cohort.column("severity") + np.sin(np.arange(len(cohort))) > 0, "new & old", "old")
    table = cohort.table.append_column("drug", [drug])
    cohort = type(cohort)(table, "synthetic", cohort.outcomes)
    scores = {"severity": cohort.column("severity"), "age": cohort.column("age")}
    page = build(balance(cohort, scores, treatment="drug", outcome="mortality"), command="mlci compare")
    assert page.count("<svg") == 1
    assert "severity, by regression" in page
    assert "Both adjust only for what the codes show, and for age. Anything else" in page
    assert "new &amp; old" in page
    assert "so no figure applies to real patients" in page
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_and_nothing_runs_over_the_edge_of_a_phone(page, browser, tmp_path, scheme):
    from axe_playwright_python.sync_playwright import Axe

    (tmp_path / "page.html").write_text(re.sub(r"<meta http-equiv[^>]*>", "", page))  # axe is a script
    shown = browser.new_page(color_scheme=scheme, viewport={"width": 375, "height": 800})
    shown.goto((tmp_path / "page.html").as_uri())
    found = Axe().run(shown)
    width = shown.evaluate("document.documentElement.scrollWidth")
    assert not found.response["violations"], found.generate_report()
    assert width <= 375
