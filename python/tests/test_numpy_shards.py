"""A vocabulary in two parts: statistics of each, put together as the header says, make the loss and gradients of the whole."""

import numpy as np
import onehot.numpy as F
import oracle
import pytest
from oracle import EPS, assert_close, f64

N, H, V, CUT = 31, 13, 57, 23
STATISTICS = ("max", "sum_exp", "target_logit", "smoothing", "moment", "argmax")
OPTIONS = {"label_smoothing": 0.1, "z_loss": 0.01}


@pytest.fixture
def case():
    rng = np.random.default_rng(9)
    x, W = oracle.values(rng, (N, H)), oracle.values(rng, (V, H), scale=0.5)
    bias, weight = oracle.values(rng, (V,)), rng.uniform(0.5, 1.5, V).astype(np.float32)
    y = oracle.zipf(rng, N, V, ignored=0.2)
    assert (y[y >= 0] < CUT).any() and (y >= CUT).any()
    return x, W, bias, weight, y


def fold(parts, sums):
    """Step 2 of include/onehot/linear_cross_entropy_shards.h; `sums` are W_s."""
    top = np.maximum.reduce([p["max"] for p in parts])
    down = [np.exp(f64(p["max"] - top)) for p in parts]
    return {
        "max": top,
        "sum_exp": sum(d * p["sum_exp"] for d, p in zip(down, parts)).astype(np.float32),
        "target_logit": sum(np.where(p["has"], p["target_logit"] + (p["max"] - top), 0) for p in parts).astype(
            np.float32
        ),
        "smoothing": sum(p["smoothing"] + (top - p["max"]) * s for p, s in zip(parts, sums)).astype(np.float32),
        "moment": sum(d * (p["moment"] + (p["max"] - top) * p["sum_exp"]) for d, p in zip(down, parts)).astype(
            np.float32
        ),
        "argmax": np.where(parts[0]["max"] == top, parts[0]["argmax"], parts[1]["argmax"]),
    }


def test_two_shards_make_the_whole(case):
    x, W, bias, weight, y = case
    shards = [slice(0, CUT), slice(CUT, V)]
    parts = []
    for rows in shards:
        part = F.linear_cross_entropy_statistics(
            x, W[rows], y, linear_bias=bias[rows], weight=weight, shard=(rows.start, V), outputs=STATISTICS
        )
        assert tuple(part) == STATISTICS and part["argmax"].dtype == np.int64
        part["has"] = (y >= rows.start) & (y < rows.stop)
        assert not part["target_logit"][~part["has"]].any()
        parts.append(part)
    whole = fold(parts, [weight[rows].sum() for rows in shards])
    argmax = whole.pop("argmax")

    outputs = ("loss", "lse", "log_probability", "entropy", "total_weight")
    result = F.linear_cross_entropy_loss(**whole, target=y, num_classes=V, weight=weight, outputs=outputs, **OPTIONS)
    expected = oracle.linear_cross_entropy(x, W, y, linear_bias=bias, weight=weight, **OPTIONS)
    np.testing.assert_array_equal(argmax, expected["argmax"])
    # Logits have errors of H steps of their terms; what is made of them a few units of the largest number more.
    L = (np.abs(f64(x)) @ np.abs(f64(W)).T).max() + 10
    slack = 8 * (H + 8) * EPS["float32"] * L
    for output in outputs:
        assert_close(result[output], expected[output], slack, output)

    known = {"max": whole["max"], "sum_exp": whole["sum_exp"]}
    entropy = result["entropy"]
    h = np.linspace(-1, 1, N).astype(np.float32)
    expected = oracle.linear_cross_entropy(
        x, W, y, linear_bias=bias, weight=weight, grad_loss=2.5, grad_entropy=h, **OPTIONS
    )
    grad_input = np.zeros_like(x)
    for rows in shards:
        part = F.linear_cross_entropy_backward(
            2.5,
            x,
            W[rows],
            y,
            linear_bias=bias[rows],
            weight=weight,
            shard=(rows.start, V),
            entropy=entropy,
            grad_entropy=h,
            outputs=("grad_input", "grad_weight", "grad_bias"),
            **known,
            **OPTIONS,
        )
        grad_input += part["grad_input"]
        du = np.abs(expected["du"]).sum()  # all magnitudes there are
        assert_close(part["grad_weight"], expected["grad_weight"][rows], slack * du * np.abs(x).max())
        assert_close(part["grad_bias"], expected["grad_bias"][rows], slack * du)
    assert_close(grad_input, expected["grad_input"], slack * du * np.abs(W).max())


def test_one_shard_has_the_bits_of_the_whole(case):
    x, W, bias, weight, y = case
    whole = F.linear_cross_entropy(x, W, y, linear_bias=bias, outputs=("loss", "lse", "grad_weight"))
    part = F.linear_cross_entropy_statistics(x, W, y, linear_bias=bias)
    assert tuple(part) == ("max", "sum_exp", "target_logit")
    result = F.linear_cross_entropy_loss(**part, target=y, num_classes=V, outputs=("loss", "lse"))
    assert result["loss"] == whole["loss"]
    np.testing.assert_array_equal(result["lse"], whole["lse"])
    gradient = F.linear_cross_entropy_backward(
        1.0, x, W, y, linear_bias=bias, shard=(0, V), max=part["max"], sum_exp=part["sum_exp"], outputs="grad_weight"
    )
    np.testing.assert_array_equal(gradient, whole["grad_weight"])


def test_logits_and_probabilities(case):
    x, W, bias, _, y = case
    part = F.linear_cross_entropy_statistics(
        x, W, y, outputs=("max", "sum_exp", "logits"), softcap=3.0, logit_scale=0.5
    )
    u = 0.5 * (f64(x) @ f64(W).T)
    z = np.where((y >= 0)[:, None], 3 * np.tanh(u / 3), 0)
    assert part["logits"].shape == (N, V)
    assert_close(part["logits"], z, 1e-5)
    p = F.linear_cross_entropy_loss(**part, target=y, num_classes=V, outputs="probability")
    expected = np.exp(z - z.max(-1, keepdims=True))
    expected = np.where((y >= 0)[:, None], expected / expected.sum(-1, keepdims=True), 0)
    assert_close(p, expected, 1e-5)

    part = F.linear_cross_entropy_statistics(x, W, y, outputs=("max", "sum_exp", "logits"))
    p = F.linear_cross_entropy_loss(**part, target=y, num_classes=V, outputs="probability")
    later = F.linear_cross_entropy_backward(1.0, x, W, y, probability=p, outputs="grad_weight")
    whole = F.linear_cross_entropy(x, W, y, outputs="grad_weight")
    assert_close(later, whole, 1e-5)


@pytest.mark.parametrize("name", [n for n in oracle.DTYPES if n not in ("float32", "float64")])
def test_dtype_of_logits(case, name):
    x, W, _, _, y = case
    x, W = x.astype(oracle.dtype_of(name)), W.astype(oracle.dtype_of(name))
    assert F.linear_cross_entropy_statistics(x, W, y, outputs="logits").dtype == oracle.dtype_of(name)
    assert F.linear_cross_entropy_statistics(x, W, y, outputs="logits", logits_dtype="float32").dtype == np.float32
    assert F.linear_cross_entropy_statistics(x, W, y, outputs="max").dtype == np.float32


def test_options_of_the_loss(case):
    x, W, _, _, y = case
    part = F.linear_cross_entropy_statistics(x, W, y)
    for options in (
        {"reduction": "none"},
        {"reduction": "sum"},
        {"denominator": 3},
        {"ignore_index": 4},
        {"token_weight": np.linspace(0, 1, N, dtype=np.float32)},
    ):
        target = np.where(y < 0, 4, y) if "ignore_index" in options else y
        part = F.linear_cross_entropy_statistics(x, W, target, ignore_index=options.get("ignore_index", -100))
        result = F.linear_cross_entropy_loss(**part, target=target, num_classes=V, **options)
        np.testing.assert_array_equal(result, F.linear_cross_entropy(x, W, target, **options))
    assert F.linear_cross_entropy_loss(**part, dtype="float64").dtype == np.float64
    ignored = np.full(N, -100)
    assert F.linear_cross_entropy_loss(**part, target=ignored, num_classes=V, zero_if_empty=True) == 0


@pytest.mark.parametrize("shard, sentence", [((V, V), "shard"), ((-1, V), "shard"), ((0, V - 1), "shard")])
def test_refusals(case, shard, sentence):
    x, W, _, _, y = case
    with pytest.raises(ValueError, match=f"^{sentence}"):
        F.linear_cross_entropy_statistics(x, W, y, shard=shard)
    with pytest.raises(ValueError, match="^target_logit: must be given for loss"):
        F.linear_cross_entropy_loss(x[:, 0], x[:, 0])
    with pytest.raises(TypeError, match="^shard: must be"):
        F.linear_cross_entropy_statistics(x, W, y, shard=3)
