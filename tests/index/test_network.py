"""An index with any encoder: saved as a file, and scored with torch if it has attention between codes."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from mlci.base import extras
from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.config import EncoderConfig, PaperConfig
from mlci.fitting import encoders
from mlci.index.model import load_model
from toys import CODES, random_model

VISITS = Admissions.from_lists([CODES[:3], [], CODES[5:30], ["ZZZ"]], icd_version=10)


def save_network(encoder: EncoderConfig, path):
    torch.manual_seed(0)
    network = encoders.build(encoder, len(CODES) + 2)
    model = random_model()
    state = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    card = model.card | {"config": asdict(PaperConfig(encoder=encoder))}
    replace(model, state=state, card=card).save(path)
    return network.eval(), model.vocabulary


@pytest.mark.parametrize("name", ["set_transformer", "star_gat", "deep_cross", "deepsets"])
def test_every_encoder_is_saved_and_scored(name, tmp_path):
    encoder = EncoderConfig(name=name, width=8, pooling="attention+gated")
    network, vocabulary = save_network(encoder, tmp_path / "model.safetensors")
    found = load_model(tmp_path / "model.safetensors").score(VISITS)
    expected = encoders.predict(network, vocabulary.encode(VISITS)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_arrays_of_another_network_are_refused(tmp_path):
    save_network(EncoderConfig(name="set_transformer", width=8), tmp_path / "model.safetensors")
    model = load_model(tmp_path / "model.safetensors")
    card = model.card | {"config": asdict(PaperConfig(encoder=EncoderConfig(name="star_gat", width=8)))}
    replace(model, card=card).save(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="does not have the parts of a model file"):
        load_model(tmp_path / "other.safetensors")


def test_a_missing_torch_raises_one_sentence(tmp_path, monkeypatch):
    save_network(EncoderConfig(name="set_transformer", width=8), tmp_path / "model.safetensors")
    monkeypatch.setattr(extras, "missing", lambda extra: "torch")
    with pytest.raises(InputError, match=r"to score with the encoder set_transformer, torch is needed.*mlci\[deep\]"):
        load_model(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pooling": "median"}, "pooling is 'median'; allowed is mean, max, sum, attention, gated"),
        ({"pooling": "mean+mean"}, "each once"),
        ({"name": "lstm"}, "name is 'lstm'; allowed is 'deepsets'"),
        ({"name": "set_transformer", "width": 10}, "a multiple of 4"),
        ({"phi_layers": 0}, "phi_layers is 0; allowed is from 1 to 16"),
    ],
)
def test_invalid_encoders_are_refused_before_training(fields, message):
    with pytest.raises(InputError) as raised:
        EncoderConfig(**fields)
    assert message in str(raised.value)
