"""Run folders, resuming, tables: on a small synthetic hospital, with the fastest models."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import oracles
from mlci.base.errors import InputError
from mlci.base.grids import power
from mlci.benchmark import diagnostics, tables
from mlci.benchmark import models as baselines
from mlci.benchmark import runs as benchmark
from mlci.benchmark.metrics import rival_metrics
from mlci.benchmark.runs import Settings, run_benchmark
from mlci.cohort import build_cohort, read_cohort
from mlci.fitting._engines import stacked
from mlci.index.model import load_model

FAST = ["charlson", "multinomial_nb", "logistic"]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cohort") / "cohort.parquet"
    build_cohort("synthetic", 1000, seed=1).write(path)
    return path


@pytest.fixture(scope="module")
def done(cohort, tmp_path_factory):
    """A benchmark with two seeds of the index itself."""
    folder = tmp_path_factory.mktemp("runs")
    settings = Settings(seeds=(11, 101), epochs=1)
    return folder, run_benchmark(cohort, folder, models=[*FAST, "paper"], settings=settings)


def test_a_run_is_a_folder_with_config_model_scores_metrics_and_done(done, cohort):
    folder, runs = done
    assert [(run.model.name, run.seed) for run in runs] == [
        ("charlson", 0),
        ("multinomial_nb", 42),
        ("logistic", 42),
        ("paper", 11),
        ("paper", 101),
    ]
    run = folder / "paper" / "11"
    assert {path.name for path in run.iterdir()} == {
        *("config.json", "model.safetensors", "scores.parquet", "metrics.json", "DONE")
    }
    assert json.loads((run / "config.json").read_text())["model"]["epochs"] == 1
    table, scores = read_cohort(cohort), pq.read_table(run / "scores.parquet")
    expected = [*table.split("valid").column("admission_id"), *table.split("test").column("admission_id")]
    assert scores["admission_id"].to_pylist() == expected
    model, state = baselines.load(run / "model.safetensors")
    again = model.score(state, baselines.parts(table)["test"])
    np.testing.assert_array_equal(again, scores["paper"].to_numpy()[-len(again) :])


def test_a_run_of_a_recipe_is_an_index(done, cohort, mlci_cli, tmp_path):
    """The index has vocabulary, risks and cutoff, and scores a file as the run scored its cohort."""
    folder, _ = done
    mlci_cli("score", folder / "paper" / "11", cohort, "-o", tmp_path / "scores.parquet")
    table, scored = read_cohort(cohort), pq.read_table(tmp_path / "scores.parquet")
    test = table.split("test").column("admission_id").tolist()
    found = dict(zip(scored["admission_id"].to_pylist(), scored["score"].to_pylist()))
    kept = pq.read_table(folder / "paper" / "11" / "scores.parquet")["paper"].to_numpy()[-len(test) :]
    np.testing.assert_allclose([found[name] for name in test], kept, atol=1e-6)
    assert {f"risk_{name}" for name in table.outcomes} <= set(scored.column_names)
    model = load_model(folder / "paper" / "101" / "model.safetensors")
    assert (model.card["seed"], model.card["baseline"]["name"]) == (101, "paper")
    assert 0.05 <= model.card["bandwidth"] < 2  # of standardised scores
    assert "not a whole model file" in mlci_cli("score", folder / "logistic" / "42", cohort, "-o", "x", code=2).stderr


def test_metrics_follow_their_definitions(done, cohort):
    from sklearn.metrics import roc_auc_score

    folder, _ = done
    test = read_cohort(cohort).split("test")
    score = pq.read_table(folder / "logistic" / "42" / "scores.parquet")["logistic"].to_numpy()[-len(test) :]
    found = benchmark.read_metrics(folder / "logistic" / "42")["metrics"]
    for name in test.outcomes:
        y = test.labels(name)[:, 0]
        known = ~np.isnan(y)
        assert found["dcorr"][name] == pytest.approx(oracles.nhsic(score[known], y[known], "energy") ** 0.5, rel=1e-9)
        assert found["auroc"][name] == pytest.approx(roc_auc_score(y[known], score[known]), rel=1e-9)


def test_finished_runs_are_kept_and_unfinished_runs_repeated(cohort, tmp_path):
    run_benchmark(cohort, tmp_path, models=FAST)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("scores.parquet")}
    (tmp_path / "logistic" / "42" / "DONE").unlink()
    seen = []
    run_benchmark(cohort, tmp_path, models=FAST, on_change=lambda runs: seen.append([run.status for run in runs]))
    assert seen[0] == ["done", "done", "left"]
    assert seen[-1] == ["done", "done", "done"]
    changed = [path.parts[-3] for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp]
    assert changed == ["logistic"]


def test_an_interrupted_run_leaves_no_done(cohort, tmp_path, monkeypatch):
    model = baselines.discover()["logistic"]
    monkeypatch.setattr(type(model), "score", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_benchmark(cohort, tmp_path, models=FAST)
    monkeypatch.undo()
    assert not (tmp_path / "logistic" / "42" / "DONE").exists()
    assert {run.status for run in run_benchmark(cohort, tmp_path, models=FAST)} == {"done"}


@pytest.mark.slow
def test_processes_give_the_same_scores(cohort, done, tmp_path):
    folder, _ = done
    runs = run_benchmark(cohort, tmp_path, models=["charlson", "logistic"], jobs=2)
    assert {run.status for run in runs} == {"done"}
    for name, seed in (("charlson", "0"), ("logistic", "42")):
        ours, theirs = (pq.read_table(root / name / seed / "scores.parquet")[name] for root in (tmp_path, folder))
        np.testing.assert_allclose(ours.to_numpy(), theirs.to_numpy(), rtol=1e-9)


def test_fits_at_once_give_nearly_the_same_scores_as_single_fits(cohort, done, tmp_path, monkeypatch):
    """The code path of a GPU, run on the CPU."""
    monkeypatch.setattr(stacked, "STACKED_DEVICES", ("cpu",))
    seen = []
    run_benchmark(
        cohort,
        tmp_path,
        models=["charlson", "deepsets_mean_max", "paper"],
        settings=Settings(seeds=(11, 101), epochs=1),
        on_change=lambda runs: seen.append([run.status for run in runs]),
    )
    assert ["done", "running", "running", "left", "left"] in seen  # both seeds of a model at once
    assert seen[-1] == ["done"] * 5
    for seed in ("11", "101"):
        ours, theirs = (
            pq.read_table(root / "paper" / seed / "scores.parquet")["paper"] for root in (tmp_path, done[0])
        )
        # In float32 Adam amplifies rounding errors; tests in float64 show that the algebra is equal.
        assert np.corrcoef(ours, theirs)[0, 1] > 0.995


def test_a_missing_device_raises_one_sentence(cohort, tmp_path):
    with pytest.raises(InputError, match="device is 'cuda:77', which this machine does not offer"):
        run_benchmark(cohort, tmp_path, models=["paper"], settings=Settings(device="cuda:77"))


def test_another_cohort_is_refused(done, tmp_path):
    build_cohort("synthetic", 900, seed=2).write(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="holds runs of another cohort"):
        run_benchmark(tmp_path / "other.parquet", done[0], models=FAST)


def test_other_ends_of_codes_and_other_patients_are_another_cohort(done, cohort, tmp_path):
    """Those of the paper's tokens are the same: the first four characters of each code."""
    whole = read_cohort(cohort)
    longer = [[f"{code}Z" if len(code) > 3 else code for code in codes] for codes in whole.table["codes"].to_pylist()]
    for name, values in (("codes", longer), ("subject_id", whole.column("subject_id") // 2)):
        place = whole.table.column_names.index(name)
        replace(whole, table=whole.table.set_column(place, name, pa.array(values))).write(tmp_path / "other.parquet")
        with pytest.raises(InputError, match="holds runs of another cohort"):
            run_benchmark(tmp_path / "other.parquet", done[0], models=FAST)
    (folder := tmp_path / "older").mkdir()
    facts = json.loads((done[0] / "cohort.json").read_text())
    (folder / "cohort.json").write_text(json.dumps({name: facts[name] for name in facts if name != "recorded"}))
    assert run_benchmark(cohort, folder, models=["charlson"])[0].status == "done"


def test_a_run_with_other_settings_is_refused(done, cohort):
    with pytest.raises(InputError, match="epochs is 1, not 2"):
        run_benchmark(cohort, done[0], models=["paper"], settings=Settings(seeds=(11,), epochs=2))


@pytest.mark.parametrize("name", ["trees", "factorization", "deepsets_mean_max", "paper"])
def test_outcomes_of_the_test_split_are_never_read(cohort, tmp_path, name):
    whole = read_cohort(cohort)
    test = np.isin(whole.column("split"), "test")
    table = whole.table
    for outcome in whole.outcomes:
        hidden = pa.array(
            [None if hide else value for hide, value in zip(test, table[outcome].to_pylist())], pa.bool_()
        )
        table = table.set_column(table.column_names.index(outcome), outcome, hidden)
    scores = []
    for data in (whole, replace(whole, table=table)):
        parts = baselines.parts(data)
        model = Settings(epochs=1).adapt(baselines.discover()[name])
        model = replace(model, rounds=20) if name == "trees" else model
        scores.append(model.score(model.fit(parts["train"], parts["valid"], seed=3), parts["test"]))
    np.testing.assert_array_equal(*scores)


def test_a_missing_library_is_skipped_with_a_message(cohort, tmp_path, monkeypatch):
    lacking = replace(baselines.discover()["trees"], needs="no_such_library")
    monkeypatch.setitem(baselines.discover(), "trees", lacking)
    [run] = run_benchmark(cohort, tmp_path, models=["trees"])
    assert (run.status, run.message) == ("skipped", "needs no_such_library")


def test_the_anchor_must_be_an_outcome(cohort, tmp_path):
    with pytest.raises(InputError, match=r"has no outcome 'death'.*mortality"):
        run_benchmark(cohort, tmp_path, models=["paper"], settings=Settings(anchor="death"))


def paper_frame(dataset: str) -> pd.DataFrame:
    """Return the paper's cells as results of three seeds with exactly its means and SDs."""
    families = {model.title: baselines.FAMILIES[model.family] for model in baselines.discover().values()}
    rows = []
    for cell in baselines.paper_scores():
        if cell["dataset"] == dataset:
            mean, sd = (float(cell[name] or 0) / 10 ** int(cell["power"]) for name in ("value", "sd"))
            title = cell["model"]
            for seed, shift in enumerate((-sd, 0, sd)):
                rows.append((families[title], title, title, seed, cell["metric"], cell["outcome"], mean + shift))
    return pd.DataFrame(rows, columns=["family", "model", "title", "seed", "metric", "outcome", "value"])


@pytest.mark.parametrize("dataset", ["mimic3", "mimic4"])
def test_the_papers_cells_give_the_papers_tables(dataset):
    """Scaling of columns, mean ± SD, and the best and second of a column are as printed."""
    made = {table.name: table for table in tables.tables(paper_frame(dataset))}
    wide = {}
    for name, metric in (("table6_dcorr_all", "dcorr"), ("table7_mi_all", "mi")):
        cells = [cell for cell in baselines.paper_scores() if (cell["dataset"], cell["metric"]) == (dataset, metric)]
        printed = {(cell["model"], cell["outcome"]): cell for cell in cells}
        outcomes = list(dict.fromkeys(cell["outcome"] for cell in cells))
        powers = [int(printed["Our Model", outcome]["power"]) for outcome in outcomes]
        assert list(made[name].heads[1:]) == [f"{outcome} ({power(p)})" for outcome, p in zip(outcomes, powers)]
        wide[metric] = {title: dict(zip(outcomes, row)) for part in made[name].sections for title, row in part.rows}
        for title, row in wide[metric].items():
            for outcome, cell in row.items():
                value = printed[title, outcome]
                assert cell.text == f"{value['value']} ± {value['sd'] or '0.00'}"
        assert len(wide[metric]) == 30
    for name in ("table1_dcorr", "table2_mi"):
        assert sum(len(part.rows) for part in made[name].sections) == 16

    def titles_at(rank: int) -> dict[str, str]:
        return {outcome: title for title, row in wide["dcorr"].items() for outcome, c in row.items() if c.place == rank}

    best, second = titles_at(1), titles_at(2)
    assert best["mortality"] == "Set Transformer + Multi-RBF nHSIC"
    assert best["long_stay"] == "Our Model"
    if dataset == "mimic3":
        assert best["icu_transfer"] == "DeepSets (mean+max pool)"
        assert second["icu_transfer"] == "DeepSets (mean pool)"
    else:
        assert second["mortality"] == "DeepSets (mean pool) + Multi-RBF nHSIC"
        assert second["long_stay"] == "FusedLogits LR"


def test_tables_are_written_as_text_markdown_and_latex(done, cohort, tmp_path):
    _, runs = done
    frame = tables.results(runs)
    diagnosed, silent = diagnostics.diagnose(runs, read_cohort(cohort))
    made = [*tables.tables(frame, ["Trees: skipped, needs lightgbm."]), *diagnostics.tables(diagnosed)]
    paths = tables.write_tables(tmp_path, made, frame, runs)
    # The paper's eight tables, by its own numbers, each as text, Markdown and LaTeX.
    numbers = sorted(path.name[:6] + path.suffix for path in paths if path.name.startswith("table"))
    assert numbers == sorted(f"table{number}.{ending}" for number in range(1, 9) for ending in ("txt", "md", "tex"))
    assert silent == []
    assert made[0].name == "headline"
    first = next(table for table in made if table.name == "table1_dcorr")
    seeds = frame.query("model == 'paper' and metric == 'dcorr' and outcome == 'mortality'")["value"]
    rows = {title: row for part in first.sections for title, row in part.rows}
    text = f"{100 * seeds.mean():.2f} ± {100 * seeds.std(ddof=1):.2f}"
    assert rows["Our Model"][0].text == text
    [best] = [row[0].text for row in rows.values() if row[0].place == 1]
    assert f"{best}*" in (tmp_path / "tables" / "table1_dcorr.txt").read_text()
    assert "skipped, needs lightgbm" in (tmp_path / "tables" / "table1_dcorr.md").read_text()
    # Positions of a maximum are listed by seed; other quantities have a mean below.
    thresholds, alignment = (
        (tmp_path / "tables" / f"{name}.md").read_text() for name in ("table4_thresholds", "table3_rank_one")
    )
    assert thresholds.count("| paper, seed") == alignment.count("| paper, seed") == 2
    assert "mean ± SD" in alignment
    assert "mean ± SD" not in thresholds


def test_a_rival_without_an_outcome_has_an_empty_cell_and_no_mean(tmp_path):
    """Regressions leave out an outcome that is too rare, and an outcome of one class has no figure for any model."""
    table = build_cohort("synthetic", 1000, seed=1)
    died = np.zeros(len(table), dtype=bool)
    died[np.flatnonzero(table.column("split") == "train")[:5]] = True
    column = table.table.column_names.index("mortality")
    rare = replace(table, table=table.table.set_column(column, "mortality", pa.array(died)))
    rare.write(tmp_path / "cohort.parquet")
    runs = run_benchmark(tmp_path / "cohort.parquet", tmp_path, models=["charlson"])
    frame = tables.results(runs, rivals=rival_metrics(rare))
    made = {grid.name: dict(row for part in grid.sections for row in part.rows) for grid in tables.tables(frame)}
    for title in ("Charlson (CCI)", "Age and sex"):  # no death in the test split: no AUROC, and no part in its mean
        assert made["auroc"][title][0].text == ""
        values = [float(cell.text) for cell in made["auroc"][title][1:]]
        assert float(made["headline"][title][0].text) == pytest.approx(np.mean(values), abs=0.01)
    some = frame[(frame["model"] != "Age and sex") | (frame["outcome"] != "long_stay")]
    made = {grid.name: dict(row for part in grid.sections for row in part.rows) for grid in tables.tables(some)}
    assert [cell.text == "" for cell in made["auroc"]["Age and sex"]] == [True, False, True, False]
    assert "Age and sex" not in made["headline"]


def test_remaining_time_is_that_of_the_same_model_or_family(done):
    _, runs = done
    finished = [replace(run, seconds=10.0) for run in runs]
    waiting = replace(finished[-1], status="left", seconds=None)
    assert benchmark.remaining([*finished[:-1], waiting], jobs=2) == pytest.approx(5.0)
    assert benchmark.remaining([waiting]) is None


def script(name: str):
    path = Path(__file__).parents[2] / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_overview_table_of_the_docs(cohort, done):
    _, runs = done
    page, whole = script("docs/tables.py"), read_cohort(cohort)
    frame = pd.concat([tables.results(runs), page.truth(whole, runs)])
    lines = [line.split(" | ") for line in page.overview(frame).splitlines()[2:]]
    after = len(page.MEANS)  # columns of means over outcomes come first
    assert [line[0].removeprefix("| ") for line in lines] == [
        *("Charlson (CCI)", "Multinomial Naive Bayes", "FusedLogits LR", "Our Model (seeds 11, 101)"),
        *("True severity", "True severity, best spaced"),
    ]
    cells = frame[(frame.model == "paper") & (frame.metric == "dcorr")].pivot(index="seed", columns="outcome").value
    assert lines[3][after + 1].split()[0] == f"{100 * cells['mortality'].mean():.1f}"
    assert float(lines[3][after + 5]) == pytest.approx((cells**2).sum(axis=1).mean(), abs=5e-4)
    ranks = whole.split("test").table.select(["true_severity"]).to_pandas()["true_severity"].rank()
    score = pd.Series(pq.read_table(runs[2].folder / "scores.parquet")["logistic"].to_numpy()[-len(ranks) :])
    assert lines[2][after + 6] == f"{100 * np.corrcoef(score.rank(), ranks)[0, 1]:.1f} |"
    assert lines[4][after + 6] == "100.0 |"
    assert float(lines[5][after + 5]) > float(lines[4][after + 5])


def test_runs_computed_elsewhere_are_imported(cohort, done, tmp_path):
    gpu = script("benchmarks/gpu_models.py")
    gpu.export(str(cohort), str(tmp_path / "tokens.npz"))
    gpu.begin(str(tmp_path / "tokens.npz"))
    model = Settings(epochs=1).adapt(baselines.discover()["paper"])
    about, arrays = gpu.work(model, [11], "cpu")
    digest = gpu.read(str(tmp_path / "tokens.npz"))[0]["digest"]
    gpu.store(str(tmp_path / "runs.npz"), digest, about, arrays)
    benchmark.import_runs(tmp_path / "runs.npz", cohort, tmp_path / "runs")
    here, there = (
        pq.read_table(root / "paper" / "11" / "scores.parquet")["paper"] for root in (done[0], tmp_path / "runs")
    )
    np.testing.assert_allclose(there.to_numpy(), here.to_numpy(), rtol=1e-5)
    settings = Settings(seeds=(11,), epochs=1)
    assert [run.status for run in benchmark.plan(tmp_path / "runs", baselines.choose(["paper"]), settings)] == ["done"]
    gpu.store(str(tmp_path / "runs.npz"), "0" * 64, about, arrays)
    with pytest.raises(InputError, match="another cohort"):
        benchmark.import_runs(tmp_path / "runs.npz", cohort, tmp_path / "runs")


def test_the_command_runs_models_and_scores_of_a_file(cohort, mlci_cli, tmp_path, empty_figures):
    test = read_cohort(cohort).split("test")
    own = pa.table({"admission_id": test.column("admission_id"), "score": np.arange(len(test), dtype=float)})
    pq.write_table(own, tmp_path / "own.parquet")
    shown = mlci_cli(
        *("benchmark", cohort, "-o", tmp_path / "out", "--models", "charlson,logistic"),
        *("--scores", f"ward={tmp_path / 'own.parquet'}"),
    )
    assert "ward" in shown.stdout
    assert "FusedLogits LR" in shown.stdout
    assert "logistic, seed 42: done" in shown.stderr
    results = pd.read_csv(tmp_path / "out" / "tables" / "results.csv")
    refitted = results["family"].str.startswith("Refitted")
    assert set(results[refitted]["metric"]) == {"auroc", "deviance", "nagelkerke", "brier_skill"}
    values = results[results["model"] == "logistic"].groupby("metric")["mean"].mean()
    headline = (tmp_path / "out" / "tables" / "headline.md").read_text()
    [line] = [line for line in headline.splitlines() if "FusedLogits LR" in line]
    for name in ("auroc", "deviance", "nagelkerke", "brier_skill", "dcorr", "mi"):
        assert f"{100 * values[name]:.2f}" in line, name
    results = results[~refitted]
    assert set(results["model"]) == {"charlson", "logistic", "ward"}
    assert (tmp_path / "out" / "tables" / "dcorr.svg").read_text().startswith("<?xml")
    pq.write_table(own.slice(5), tmp_path / "own.parquet")
    words = ("benchmark", cohort, "-o", tmp_path / "out", "--scores", f"ward={tmp_path / 'own.parquet'}")
    assert f"lacks 5 of {len(test)} test admissions" in mlci_cli(*words, code=2).stderr


def test_the_command_reports_unknown_models_and_lists_the_known(cohort, mlci_cli, tmp_path):
    unknown = mlci_cli("benchmark", cohort, "-o", tmp_path / "out", "--models", "charlsen", code=2).stderr
    assert "'charlsen' is not known" in unknown
    assert "set_transformer_multi_rbf" in unknown
    listed = mlci_cli("benchmark", "--list").stdout
    for model in baselines.discover().values():
        assert model.name in listed
