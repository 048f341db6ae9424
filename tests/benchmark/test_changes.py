"""Changed settings of the benchmark's models, from a TOML file."""

import pytest

from mlci.base.errors import InputError
from mlci.benchmark import models as baselines
from mlci.benchmark.changes import changed, read_changes
from mlci.benchmark.runs import Settings

FILE = """
[knn]
k = 20
[ablation.objective]
validity = "outcome"
factors = [0.5, 1.0]
[paper]
width = 32
[paper.optimiser]
betas = [0.8, 0.99]
stage2_epochs = 3
"""


def test_settings_apply_to_models_and_families(tmp_path):
    (tmp_path / "changes.toml").write_text(FILE)
    settings = Settings(epochs=2, changes=read_changes(tmp_path / "changes.toml"))
    models = {name: settings.adapt(model) for name, model in baselines.discover().items()}
    assert models["knn"].k == 20
    assert models["paper"].width == 32
    config = models["paper"].config()
    assert (config.encoder.width, config.optimiser.betas) == (32, (0.8, 0.99))
    assert (config.optimiser.stage1_epochs, config.optimiser.stage2_epochs) == (2, 3)
    variants = [model.config().objective for model in models.values() if model.family == "ablation"]
    assert {(objective.validity, objective.factors) for objective in variants} == {("outcome", (0.5, 1.0))}
    assert models["deepsets_sum"] == Settings(epochs=2).adapt(baselines.discover()["deepsets_sum"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[lstm]\nk = 1", "'lstm' is not a table of a model or a family"),
        ("k = 1", "'k' is not a table"),
        ("[knn]\nneighbours = 1", "neighbours is not a setting of knn; allowed are k, memory_mb, reference, seed"),
        ("[knn]\nk = 'many'", "k is 'many'; it must have the same type as 50"),
        ("[paper.optimiser]\nbeta = 1", "optimiser.beta is not a known key; allowed are learning_rate"),
        ("[paper.objective]\nleast_rows = 1", "least_rows is 1; allowed is at least 2"),
        ("[paper", "is not TOML"),
    ],
)
def test_wrong_settings_are_reported_before_any_run(tmp_path, text, message):
    (tmp_path / "changes.toml").write_text(text)
    with pytest.raises(InputError) as raised:
        read_changes(tmp_path / "changes.toml")
    assert message in str(raised.value)


def test_names_cannot_be_changed():
    with pytest.raises(InputError):
        changed(baselines.discover()["knn"], {"knn": {"title": "x"}})
