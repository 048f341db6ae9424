"""Codes are carried from earlier admissions as a loop over each patient's admissions would do."""

import numpy as np
import pytest

from mlci.codes.lookback import DAY, History, since_first


@pytest.fixture
def many():
    rng = np.random.default_rng(0)
    n = 300
    patients, days = rng.integers(0, 50, n), rng.integers(0, 900, n)
    codes = [rng.integers(0, 20, size).tolist() for size in rng.integers(0, 6, n)]
    return patients, days, codes


def earlier(patients, days, row, reach):
    """The rows of the same patient that began before and within reach, the latest first."""
    rows = [k for k in range(len(days)) if patients[k] == patients[row] and 0 < days[row] - days[k] <= reach]
    return sorted(rows, key=lambda k: -days[k])


@pytest.mark.parametrize("reach", [1, 90, 365, 10_000])
def test_equals_a_loop(many, reach):
    patients, days, codes = many
    history = History.of(patients, days * DAY, reach)
    bits = np.array([sum({1 << code for code in listed}) for listed in codes], dtype=np.uint64)
    flat = np.array([code for listed in codes for code in listed])
    offsets = np.concatenate([[0], np.cumsum([len(listed) for listed in codes])])
    places, ends, old = history.codes(flat, offsets)
    carried, observed = history.carried(bits, bits), since_first(patients, days)
    for row, own in enumerate(codes):
        before = [code for k in earlier(patients, days, row, reach) for code in codes[k]]
        part = slice(ends[row], ends[row + 1])
        found = flat[places[part]].tolist()
        assert found[: len(own)] == own
        assert sorted(found[len(own) :]) == sorted({*before} - {*own})
        assert old[part].tolist() == [False] * len(own) + [True] * (len(found) - len(own))
        assert carried[row] == np.bitwise_or.reduce([bits[row], *bits[earlier(patients, days, row, reach)]])
        assert observed[row] == days[row] - days[patients == patients[row]].min()


def test_admissions_that_begin_at_once_are_not_each_others_past():
    history = History.of(np.array([1, 1, 1]), np.array([0, 0, 1]) * DAY, 365)
    assert history.carried(*2 * [np.array([1, 2, 4], dtype=np.uint64)]).tolist() == [1, 2, 7]


def test_indices_of_a_file_are_those_of_its_cohort(tmp_path):
    import pandas as pd
    from click.testing import CliRunner

    import mlci
    from mlci.cli import cli

    rng = np.random.default_rng(1)
    many = 80
    frame = pd.DataFrame({"visit": range(many), "mrn": rng.integers(0, 12, many), "died": rng.integers(0, 2, many)})
    frame["day"] = [f"2020-{month:02d}-{day:02d}" for month, day in rng.integers(1, 13, (many, 2))]
    frame["DX1"] = rng.choice(["I50.9", "E11.9", "J44.9", "N18.6", "C78.0"], many)
    frame.loc[:3, "day"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["indices", tmp_path / "a.csv", "-o", tmp_path / "s.csv", "-q", "--look-back", "60", "--subject", "mrn"]
    words = [*map(str, words), "--icd-version", "10", "--codes", "DX1"]
    CliRunner().invoke(cli, [*words, "--admitted", "day"], catch_exceptions=False)
    options = {"subject": "mrn", "admitted": "day", "icd_version": 10, "look_back": 60}
    cohort = mlci.Cohort.from_frame(frame, id="visit", codes="DX1", **options)
    expected = mlci.charlson(cohort).set_index("admission_id")["cci_charlson"]
    found = pd.read_csv(tmp_path / "s.csv").set_index("admission_id")["cci_charlson"]
    assert found.to_dict() == expected.to_dict()
    alone = mlci.Cohort.from_frame(frame, id="visit", codes="DX1", subject="mrn", icd_version=10)
    assert (found > mlci.charlson(alone).set_index("admission_id")["cci_charlson"]).any()
    audited = [*words, "--admitted", "day", "--audit", str(tmp_path / "audit.csv")]  # one column for two purposes
    assert CliRunner().invoke(cli, audited, catch_exceptions=False).exit_code == 0
    frame.assign(day="05/31/2024").to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(mlci.InputError, match=r"a.csv: column day: not every time of admission is understood"):
        CliRunner().invoke(cli, [*words, "--admitted", "day"], catch_exceptions=False)
    frame.loc[17, "day"] = "31.05.2024"  # the file has a header, so this is row 19
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(mlci.InputError, match=r"column day: not every time of admission is understood \(row 19\)"):
        CliRunner().invoke(cli, [*words, "--admitted", "day"], catch_exceptions=False)
    options = {"id": "visit", "codes": "DX1", "icd_version": 10, "admitted": "day", "look_back": 60}
    frame.assign(died=0).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(mlci.InputError, match=r"source file: not every time of admission is understood \(row 19\)"):
        mlci.build_cohort("file", tmp_path / "a.csv", **options)
    with pytest.raises(mlci.InputError, match="lacks the column admitted, which a look-back needs"):
        CliRunner().invoke(cli, words, catch_exceptions=False)
    with pytest.raises(mlci.InputError, match="look_back: 0 is not allowed"):
        CliRunner().invoke(cli, [*words, "--look-back", "0"], catch_exceptions=False)


def test_what_arose_then_is_history_and_what_arose_now_counts_if_asked(tmp_path):
    import pandas as pd
    from click.testing import CliRunner

    import mlci
    from mlci.cli import cli

    frame = pd.DataFrame(
        {
            "visit_id": [1, 2],
            "subject_id": [7, 7],
            "admitted": ["2020-01-01", "2020-02-01"],
            "codes": ["I50.9 E11.9", "N18.6 J44.9"],
            "poa": ["N Y", "N Y"],
            "died": [0, 1],
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)

    def points(*words: str, file: str = "a.csv") -> list[int]:
        words = ("indices", str(tmp_path / file), "-o", str(tmp_path / "s.csv"), "--icd-version", "10", *words)
        done = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert ("and do not count (--poa all counts them)" in done.output) == (
            "--poa" not in words and "-q" not in words
        )
        return pd.read_csv(tmp_path / "s.csv")["cci_charlson"].tolist()

    assert points("--look-back", "90") == [1, 3]  # diabetes; lungs, diabetes, and the heart failure of then
    assert points("--look-back", "90", "--poa", "only") == [1, 3]
    assert points("--look-back", "90", "--poa", "all") == [2, 5]
    assert points("--poa", "only") == [1, 1]
    assert points("--look-back", "90", "--carry", str(carry_table(tmp_path)), "--poa", "only") == [1, 2]
    options = {"icd_version": 10, "outcomes": {"mortality": "died"}}
    lists = frame.assign(codes=frame["codes"].str.split(), poa=frame["poa"].str.split())
    cohort = mlci.Cohort.from_frame(lists, **options)
    assert mlci.charlson(cohort.looking_back(90).present())["cci_charlson"].tolist() == [1, 3]
    cohort.write(tmp_path / "c.parquet")  # has no times, but the days since the first admission
    assert points("--look-back", "90", "-q", file="c.parquet") == [1, 3]
    assert points("--look-back", "30", "-q", file="c.parquet") == [1, 1]
    cohort.looking_back(90).write(tmp_path / "l.parquet")
    with pytest.raises(
        mlci.InputError, match=r"l.parquet: was built with --look-back 90 already; leave out --look-back"
    ):
        points("--look-back", "30", "-q", file="l.parquet")


def carry_table(folder):
    (folder / "carry.csv").write_text("code,days\nE11,0\nI50,40\n")
    return folder / "carry.csv"


@pytest.mark.slow
def test_a_million_admissions_in_three_seconds():
    import time

    rng = np.random.default_rng(0)
    patients, days = rng.integers(0, 300_000, 1_000_000), rng.integers(0, 3650, 1_000_000)
    bits = rng.integers(0, 2**48, 1_000_000).astype(np.uint64)
    start = time.process_time()
    History.of(patients, days * DAY, 10_000).carried(bits, bits)
    assert time.process_time() - start < 3
