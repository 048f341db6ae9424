import pyarrow.parquet as pq
import pytest

from conftest import SHARED
from mlci.base.errors import InputError
from mlci.codes import icd, maps
from oracles import digest

# sha256 of the General Equivalence Mappings as published, row by row
PUBLISHED = "00ee8e6e34b0a2a9a246ab91da04cbc9df2ed8c585cc28fd01484b2d7f609086"


def test_bundled_maps_are_the_published_ones():
    bundled = {
        (version, code, each.scenario, each.choice_list, each.approximate, each.target)
        for version in icd.VERSIONS
        for code, own in maps._entries(version).items()
        for each in own
    }
    assert digest(bundled) == PUBLISHED
    if (file := SHARED / "icd_maps.parquet").exists():
        names = ("from_version", "from_code", "scenario", "choice_list", "approximate", "to_code")
        rows = {tuple(row[name] for name in names) for row in pq.read_table(file).to_pylist() if row["to_code"]}
        assert digest(rows) == PUBLISHED


@pytest.mark.parametrize(
    ("code", "version", "wanted"),
    [
        ("428.0", 9, {("I509",)}),
        ("i10", 10, {("4010",), ("4011",), ("4019",)}),
        ("A02.1", 10, {("0031", "99591")}),  # two that belong together
        ("I11.0", 10, {("40201",), ("40211",), ("40291",)}),  # several to choose from
        ("nonsense", 10, set()),
        ("", 9, set()),
    ],
)
def test_counterparts(code, version, wanted):
    assert {way.codes for way in maps.counterparts(code, version)} == wanted


def test_of_several_the_unspecified_comes_first():
    assert maps.counterparts("I10", 10)[0].codes == ("4019",)


def test_a_heading_is_read_by_its_finer_codes_and_a_new_code_by_its_neighbours():
    assert {("4281",), ("4280",), ("42820", "4280")} <= {way.codes for way in maps.counterparts("I50", 10)}
    assert not maps._entries(10).get("I2693")  # younger than the maps
    assert {way.codes[0][:4] for way in maps.counterparts("I26.93", 10)} == {"4151"}
    assert all(way.approximate for way in maps.counterparts("I26.93", 10))


def test_every_way_names_codes_of_the_other_version():
    for version in icd.VERSIONS:
        known = set(icd._rows(19 - version))
        ways = [way for code in list(maps._entries(version))[::50] for way in maps.counterparts(code, version)]
        missing = [code for way in ways for code in way.codes if code not in known]
        assert len(missing) <= len(ways) / 100, missing  # the titles are three years younger than the maps


def test_a_version_is_9_or_10():
    with pytest.raises(InputError, match="ICD version 11 is not known"):
        maps.counterparts("I50", 11)
