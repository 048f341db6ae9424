import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlci.base.errors import InputError
from mlci.codes.admissions import as_admissions
from mlci.index._explain import shares
from mlci.index.estimator import MLCI
from toys import NESTED_CODES, nested_code_lists, random_model, random_table

codes = st.lists(st.sampled_from([*NESTED_CODES[:30], "A019", "ZZZ", "ZZZ1"]), max_size=8)


def index_of(model) -> MLCI:
    index = MLCI()
    index.model_ = model
    return index


TABLES = {
    "plain": index_of(random_table()),
    "principal": index_of(random_table(primary=True)),
    "few codes": index_of(random_table(max_codes=3)),
    "ignored": index_of(random_table(ignored=("10:A00",))),
}


@pytest.mark.filterwarnings("ignore:.*(unknown to the model|fewer than half|have more than 3|longer than any code)")
@pytest.mark.parametrize("name", TABLES)
@given(admission=codes)
@settings(max_examples=25, deadline=None)
def test_shares_of_a_table_add_up(name, admission):
    index = TABLES[name]
    found = index.explain(admission, icd_version=10)
    assert found.additive
    assert found.score == index.score([admission], icd_version=10)[0]
    np.testing.assert_allclose(found.base_score + sum(effect.effect for effect in found), found.score, atol=1e-9)
    expected = index.model_.read(as_admissions([admission], icd_version=10)).log_odds[0]
    for column, outcome in enumerate(index.model_.outcomes):
        total = found.base_log_odds[outcome] + sum(effect.log_odds[outcome] for effect in found)
        np.testing.assert_allclose([total, found.log_odds[outcome]], expected[column], atol=1e-9)


def test_a_prefix_is_split_evenly_among_the_codes_that_share_it():
    index = TABLES["plain"]
    tokens, weights = list(index.model_.vocabulary.tokens), index.model_.state["weights"][2:, 0]
    weight = dict(zip(tokens, weights))
    first, second, third = index.explain(["A000", "A001", "A001"], icd_version=10)
    assert first.log_odds["mortality"] == pytest.approx(weight["A00"] / 3 + weight["A000"])
    assert second.log_odds["mortality"] == pytest.approx(weight["A00"] / 3 + weight["A001"] / 2)
    assert third.log_odds == second.log_odds
    assert third.score_without == index.score([["A000", "A001"]], icd_version=10)[0]


def test_shares_do_not_depend_on_the_batch():
    index, lists = TABLES["principal"], nested_code_lists(40, seed=2)
    admissions = as_admissions(lists, icd_version=10)
    together = shares(index.model_, admissions, index.model_.read(admissions)).score
    alone = [effect.effect for each in lists for effect in index.explain(each, icd_version=10)]
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_notebook_shows_the_table_of_effects():
    text = TABLES["plain"].explain(["A001", "ZZZ"], icd_version=10)._repr_html_()
    for part in ("A001", "unknown to the model", "No codes", "This admission", "log-odds", "Rows add up"):
        assert part in text
    assert "do not add up" in index_of(random_model()).explain(["A000"], icd_version=10)._repr_html_()


def test_a_string_in_place_of_a_list_is_refused():
    with pytest.raises(InputError, match="expected a list of codes"):
        TABLES["plain"].explain("I50.9 N17.9", icd_version=10)
