"""The language model as a workload: tokens, packing, the model, scores against the definitions."""

import json
import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.training.trainings import compute_metrics, loss_of, write_dataset
from training.data.dataset import Dataset, Share
from training.workloads import load_workload
from training.workloads.language_model import completions
from training.workloads.language_model.config import SPEC, LanguageModelConfig
from training.workloads.language_model.scores import find_padding, iter_documents, score_documents
from training.workloads.language_model.workload import Bigram
from trainyard.common.errors import DataError

pytestmark = pytest.mark.long

SMALL = {"context_length": 8, "layers": 2, "heads": 2, "dim": 16}
TEXT = "the cat sat on the mat; the dog ate the cat's hat. größer — 東京 🐈\n" * 3
END = 256


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory) -> Path:
    """Train a byte-level BPE like GPT-2's on a few lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def encode(tokenizer, text: str) -> np.ndarray:
    """Return one text's tokens, without the end token."""
    *tokens, end = tokenizer.encode_documents(pa.array([text], pa.string()))
    assert end == tokenizer.end
    return np.array(tokens, np.int64)


def pack(workload, texts: list[str], at_once: int = 3) -> np.ndarray:
    packer = workload.packing.packer()
    groups = [texts[start : start + at_once] for start in range(0, len(texts), at_once)]
    batches = [pa.record_batch({"text": pa.array(group, pa.string())}) for group in groups]
    return np.concatenate([packer.add(b)["tokens"] for b in batches] + [packer.flush()["tokens"]])


def dataset(folder: Path, workload, texts: list[str]) -> Dataset:
    packing = workload.packing
    tokens = {"tokens": pack(workload, texts)}
    write_dataset(folder, tokens, packing.fields, shard_bytes=2000, workload=packing.info)
    return Dataset(folder)


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(2, 12), st.integers(1, 8))
def test_packing_keeps_every_byte_and_predicts_each_once(texts, context, at_once):
    workload = load_workload("language_model", SMALL | {"context_length": context})
    samples = pack(workload, texts, at_once)
    assert samples.shape[1] == context + 1
    assert (samples[1:, 0] == samples[:-1, -1]).all()  # consecutive samples share one token
    stream = [*samples[:1, 0], *samples[:, 1:].ravel()]
    expected = [token for text in texts for token in (*text.encode(), END)]
    assert stream[: len(expected)] == expected or len(expected) < 2
    assert set(stream[len(expected) :]) <= {END}
    assert len(stream) - len(expected) < context or len(expected) < 2


@given(text=st.text(max_size=60))
def test_a_tokenizer_file_says_how_many_bytes_each_token_stands_for(tokenizer_folder, text):
    workload = load_workload("language_model", SMALL | {"tokenizer": "file"}, tokenizer_folder)
    tokens = encode(workload.tokenizer, text)
    assert workload.tokenizer.token_bytes[tokens].sum() == len(text.encode())
    assert workload.tokenizer.token_bytes[workload.tokenizer.end] == 0


def test_the_end_token_in_a_text_is_text(tokenizer_folder):
    tokenizer = load_workload("language_model", {"tokenizer": "file"}, tokenizer_folder).tokenizer
    assert tokenizer.end not in encode(tokenizer, "a <|endoftext|> b")


@given(texts=st.lists(st.text(max_size=60), max_size=6), limit=st.integers(1, 100))
def test_texts_encoded_together_are_the_texts_encoded_alone(tokenizer_folder, texts, limit):
    tokenizer = load_workload("language_model", {"tokenizer": "file"}, tokenizer_folder).tokenizer
    alone = [token for text in texts for token in (*encode(tokenizer, text), tokenizer.end)]
    with mock.patch.object(completions, "BATCH_BYTES", limit):
        together = tokenizer.encode_documents(pa.array(texts, pa.string()))
    assert together.tolist() == alone


def test_the_tokenizer_travels_and_its_hash_is_in_the_manifest(tokenizer_folder):
    workload = load_workload("language_model", SMALL | {"tokenizer": "file"}, tokenizer_folder)
    content = (tokenizer_folder / "tokenizer.json").read_bytes()
    assert workload.files() == {"tokenizer.json": content}
    assert len(workload.packing.info["files"]["tokenizer.json"]) == 64


def word_piece(description: dict) -> None:
    description["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}


def no_end(description: dict) -> None:
    description["added_tokens"] = []
    del description["model"]["vocab"]["<|endoftext|>"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (word_piece, "is not byte-level"),
        (no_end, "to end a document with"),
        (None, "no such tokenizer; set workload.tokenizer"),
    ],
)
def test_an_unfit_or_missing_tokenizer_is_refused(tokenizer_folder, tmp_path, change, expected):
    if change:
        description = json.loads((tokenizer_folder / "tokenizer.json").read_bytes())
        change(description)
        (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match=expected):
        load_workload("language_model", {"tokenizer": "file"}, tmp_path)


def test_the_loss_is_a_sum_and_padding_is_no_unit():
    workload = load_workload("language_model", SMALL)
    model = workload.model()
    [sample] = pack(workload, ["abc"])
    assert sample.tolist() == [97, 98, 99, *[END] * 6]
    total, count = loss_of(workload, model, {"tokens": torch.from_numpy(sample[None])})
    log_p = torch.log_softmax(model(torch.from_numpy(sample[None, :-1].astype(np.int64))), -1)[0]
    assert count == 3  # b, c, and one end
    assert total.item() == pytest.approx(
        -sum(log_p[i, t].item() for i, t in enumerate([98, 99, END]))
    )


def test_the_metrics_are_what_their_names_say(tmp_path, tokenizer_folder):
    torch.manual_seed(0)
    workload = load_workload("language_model", SMALL | {"tokenizer": "file"}, tokenizer_folder)
    model = workload.model().eval()
    texts = [TEXT, "a hat", ""]
    found = compute_metrics(workload, model, dataset(tmp_path, workload, texts))
    nats = hits = count = size = 0
    for sample in torch.from_numpy(pack(workload, texts).astype(np.int64)):
        logits = model(sample[None, :-1])[0]
        for position, target in enumerate(sample[1:].tolist()):
            if target == workload.tokenizer.end == sample[position]:
                continue
            nats -= torch.log_softmax(logits[position].double(), -1)[target].item()
            hits += logits[position].argmax().item() == target
            size += workload.tokenizer.token_bytes[target]
            count += 1
    expected = {
        "loss": nats / count,
        "perplexity": math.exp(nats / count),
        "bits_per_byte": nats / math.log(2) / size,
        "next_token_accuracy": hits / count,
    }
    assert {name: m["value"] for name, m in found.items()} == pytest.approx(expected, rel=1e-5)
    # The text's bytes are all there but those of the very first token, which nothing predicts.
    first = workload.tokenizer.token_bytes[pack(workload, texts)[0, 0]]
    assert size == len("".join(texts).encode()) - first


@given(st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=2, max_size=12))
def test_baselines_are_distributions_with_the_counted_frequencies(rows):
    tokens = np.array(rows, dtype=np.uint16)
    model = Bigram(tokens, 5)
    every = np.arange(5)
    assert np.exp(-model.compute_unigram_cost(every)).sum() == pytest.approx(1)
    for previous in every:
        assert np.exp(
            -model.compute_bigram_cost(np.full(5, previous), every)
        ).sum() == pytest.approx(1)
    pairs = Counter(
        zip(tokens[:, :-1].ravel().tolist(), tokens[:, 1:].ravel().tolist(), strict=True)
    )
    followed = Counter(tokens[:, :-1].ravel().tolist())
    targets = Counter(tokens[:, 1:].ravel().tolist())
    k = model.concentration
    for a in range(5):
        for b in range(5):
            unigram = (targets[b] + 1) / (sum(targets.values()) + 5)
            expected = (pairs[a, b] + k * unigram) / (followed[a] + k)
            assert math.exp(-model.compute_bigram_cost(np.array(a), np.array(b))) == pytest.approx(
                expected
            )
        if followed[a]:
            assert pairs[a, model.predict_likeliest(np.array(a))] == max(
                pairs[a, b] for b in range(5)
            )


def test_the_bigram_beats_the_unigram_where_pairs_matter_and_both_keep_to_their_limit(tmp_path):
    workload = load_workload("language_model", SMALL)
    train = dataset(tmp_path / "train", workload, ["ab" * 4000])
    test = dataset(tmp_path / "test", workload, ["ab" * 400])
    found = workload.baselines(train, test, 10**6)
    assert found["unigram"]["bits_per_byte"] == pytest.approx(1, abs=0.1)
    assert found["bigram"]["bits_per_byte"] < 0.2
    assert found["bigram"]["next_token_accuracy"] > 0.95
    part = workload.baselines(train, test, 9 * 10)
    assert part["unigram"]["loss"] > found["unigram"]["loss"]


@pytest.mark.parametrize("fields", [{"dim": 18, "heads": 4}, {"dim": 12, "heads": 4}])
def test_an_impossible_model_is_refused(fields):
    with pytest.raises(ValidationError):
        LanguageModelConfig(**fields)


@given(
    objects=st.lists(
        st.lists(st.text("ab", max_size=9), min_size=1, max_size=6), min_size=1, max_size=3
    ),
    context=st.integers(2, 5),
    size=st.integers(1, 9),
    count=st.integers(1, 4),
)
def test_a_document_is_one_example_wherever_it_was_cut(objects, context, size, count):
    """A token's loss depends on it and the token before it, so the sums are known; and it belongs
    to one share, in whose process the model sees whole batches of the split.
    """
    batches = []
    workload = load_workload("language_model", SMALL | {"context_length": context})

    def measure(samples):
        batches.append(samples.tolist())
        costs = samples[:, :-1] * 7.0 + samples[:, 1:]
        return np.where(
            find_padding(samples, END)[..., None], 0.0, np.stack((costs, costs > 0), -1)
        )

    with TemporaryDirectory() as name:
        for number, texts in enumerate(objects):
            tokens, host = {"tokens": pack(workload, texts)}, f"object-{number}"
            write_dataset(Path(name), tokens, workload.packing.fields, host=host, shard_bytes=60)
        if not list(Path(name).glob("*.npy")):
            return
        data = Dataset(Path(name))
        found, *shares = (
            [
                (data.get_source_name(source), row.tolist(), one)
                for source, hashes, sums in iter_documents(data, END, size, measure, share)
                for one, row in zip(hashes.tolist(), sums, strict=True)
            ]
            for share in (None, *(Share(index, count) for index in range(count)))
        )
    whole = -(-len(data) // size)
    assert [row for share in shares for row in share] == found
    assert all(batch in batches[:whole] for batch in batches[whole:])
    expected, names = [], {}
    for number, texts in enumerate(objects):
        stream = [token for text in texts for token in (*text.encode(), END)]
        place = 0
        for text in texts if len(stream) > 1 else ():
            pairs = range(max(place, 1), place + len(text) + 1)
            cost = sum(stream[at - 1] * 7.0 + stream[at] for at in pairs)
            place += len(text) + 1
            if text:
                expected.append((f"object-{number}.jsonl", [cost, float(len(pairs))], text))
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    for (*_, one), (*_, text) in zip(found, expected, strict=True):
        assert names.setdefault(text, one) == one
    assert len(set(names.values())) == len(names)


def test_the_scores_of_documents_add_up_to_the_metrics_and_say_where_they_come_from(tmp_path):
    torch.manual_seed(0)
    workload = load_workload("language_model", SMALL)
    model = workload.model().eval()
    for host, texts in {"news/a": ["one", "two"], "news/b": ["three"], "code": ["x = 1"]}.items():
        tokens = {"tokens": pack(workload, texts)}
        write_named(tmp_path, tokens, workload.packing.fields, host)
    data = Dataset(tmp_path)
    blocks = list(workload.scores(model, data, ["source"]))
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    assert columns["slice.source"].tolist() == ["code.jsonl", "news", "news", "news"]
    assert columns["loss.weight"].tolist() == [5, 3, 4, 5]  # the object's first token is not told
    assert {f"{metric}.sum" for metric in SPEC.compared_in} == {n for n in columns if ".sum" in n}
    found = workload.metrics(blocks)
    loss = columns["loss.sum"].sum() / columns["loss.weight"].sum()
    assert found["loss"]["value"] == pytest.approx(loss)
    assert found["perplexity"]["value"] == pytest.approx(math.exp(loss))
    again = [block["example"] for block in workload.examples(data)]
    assert np.concatenate(again).tolist() == columns["example"].tolist()


def test_a_document_whose_score_is_no_number_spoils_no_other(tmp_path):
    workload = load_workload("language_model", SMALL)
    data = dataset(tmp_path, workload, ["good", "bad!", "good again"])

    def predict(samples):
        nats = np.where(samples[:, 1:] == ord("!"), np.nan, 1.0)
        return nats, np.zeros(nats.shape, bool)

    [block] = score_documents(data, workload.tokenizer, predict, 100)
    assert np.isnan(block["loss.sum"]).tolist() == [False, True, False]


def test_a_split_without_text_has_no_metrics(tmp_path, tokenizer_folder):
    workload = load_workload("language_model", SMALL)
    data = dataset(tmp_path, workload, ["", "", ""])
    with pytest.raises(DataError, match="holds no text"):
        compute_metrics(workload, workload.model().eval(), data)


def write_named(folder: Path, samples: dict, fields: dict, name: str) -> None:
    """Write samples as the shard step would write a raw object below a folder."""
    host = name.replace("/", "-")
    write_dataset(folder, samples, fields, host=host)
    manifest = folder / f"manifest-{host}.json"
    manifest.write_text(manifest.read_text().replace(f'"{host}.jsonl"', f'"{name}.jsonl"'))
