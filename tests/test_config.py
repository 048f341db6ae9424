import json
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.util import find_spec

import numpy as np
import pytest

from conftest import require
from mlci.base.errors import InputError
from mlci.config import (
    BandwidthConfig,
    DeepConfig,
    ObjectiveConfig,
    OptimiserConfig,
    PaperConfig,
    TableConfig,
    TableTokenConfig,
    TokenConfig,
    config_from,
    read_config,
    toml_of,
)
from mlci.index.estimator import MLCI, load


def test_defaults_are_the_constants_of_the_paper():
    config = PaperConfig()
    assert (config.tokens.depths, config.tokens.max_codes, config.encoder.width) == ((4,), 256, 128)
    assert (config.objective.floor, config.bandwidth.floor, config.bandwidth.subsample) == (1e-4, 0.05, 20_000)
    assert (config.optimiser.learning_rate, config.optimiser.batch, config.optimiser.weight_decay) == (1e-3, 256, 0)
    assert (config.optimiser.stage1_epochs, config.optimiser.stage2_epochs) == (10, 10)
    assert (config.weights.epsilon, config.weights.gamma, config.weights.clip) == (0.02, 0.25, 3)


def test_file_changes_only_the_settings_it_contains(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('[tokens]\ndepths = [3, 4, 7]\n[optimiser]\nbatch = 512\n[selection]\nanchor = "died"\n')
    config = read_config(path)
    assert config.tokens == TokenConfig(depths=(3, 4, 7))
    assert config.optimiser == OptimiserConfig(batch=512)
    assert config.selection.anchor == "died"
    assert config.bandwidth == BandwidthConfig()


def test_config_survives_conversion_to_json():
    config = PaperConfig(tokens=TokenConfig(depths=(3, 4)), objective=ObjectiveConfig(kernel="energy"))
    assert config_from(json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[optimiser]\nbach = 3", "run.toml: optimiser.bach is not a known key; allowed are .*batch"),
        ("[optimizer]\nbatch = 3", "run.toml: optimizer is not a known key; allowed are .*optimiser"),
        ("[optimiser]\nbatch = 'many'", "run.toml: optimiser.batch.*integer.*'many'"),
        ("[optimiser]\nbatch = 2", "run.toml: optimiser: batch is 2; allowed is at least 3"),
        ("[optimiser]\nlearning_rate = nan", "run.toml: optimiser"),
        ("[optimiser]\nlearning_rate = inf", "run.toml: optimiser.learning_rate: input should be a finite number"),
        ("[optimiser]\nbatch = 2010-01-01", "run.toml: optimiser.batch.*integer.*'2010-01-01'"),
        ("[objective]\nkernel = 'rfb'", "run.toml: objective.kernel.*'rbf'"),
        ("[tokens]\ndepths = []", "depths"),
        ("tokens = 3", "run.toml: tokens"),
        ("[tokens", "run.toml: is not TOML"),
    ],
)
def test_invalid_config_raises_a_one_sentence_error(tmp_path, text, words):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as error:
        read_config(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("recipe", "section"), [("table", "curve"), ("deep", "collapse")])
def test_printed_settings_with_the_importance_of_outcomes_are_read_back(tmp_path, recipe, section):
    config = config_from({section: {"importance": {"mortality": 2.0, "long stay": 0.5}}}, recipe=recipe)
    path = tmp_path / "own.toml"
    path.write_text(toml_of(config))
    assert read_config(path, recipe=recipe) == config


def test_invalid_values_raise_an_error_in_python():
    with pytest.raises(InputError, match=r"kernel is 'rfb'; allowed is 'rbf', 'multi-rbf', 'energy'"):
        ObjectiveConfig(kernel="rfb")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="depths"):
        TokenConfig(depths=(0,))


def test_importing_paper_needs_neither_arrow_nor_pydantic():
    require(find_spec("torch"), "torch", "pip install 'mlci[deep]'")
    probe = "import sys, mlci.fitting.paper; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", probe], text=True, capture_output=True, check=True).stdout.split()
    assert not {"pyarrow", "pydantic", "pandas", "scipy", "sklearn"} & set(loaded)


def test_numbers_of_numpy_are_numbers():
    assert config_from({"tokens": {"depths": np.array([3, 5])}}, recipe="table").tokens.depths == (3, 5)
    assert config_from({"penalty": {"folds": np.int64(3), "own": 0.5, "common": np.float32(0.5)}}, recipe="table")


def test_a_model_of_any_depth_of_a_table_can_be_read_back(tmp_path):
    """What the config allows, a model file may hold."""
    codes, died = [["I50.9" + "1" * 40], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}
    for depths in (tuple(range(1, 41)), (40,)):
        index = MLCI(config=TableConfig(tokens=TableTokenConfig(depths=depths))).fit(codes, died, icd_version=10)
        index.save(tmp_path / "model")
        assert load(tmp_path / "model").model_.vocabulary.depths == depths
    with pytest.raises(InputError, match="allowed is from 1 to 40"):
        TableTokenConfig(depths=(41,))


def test_small_hospitals_keep_rare_tokens():
    small, large = (DeepConfig().tokens.settled(n).min_admissions for n in (1_000, 90_000))
    assert (small, large) == (3, 10)
    given = replace(DeepConfig().tokens, min_admissions=7)
    assert given.settled(1_000) == given
    assert TableConfig().tokens.settled(1_000).min_admissions == 1
