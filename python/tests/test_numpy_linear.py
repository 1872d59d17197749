"""onehot.numpy.linear_cross_entropy and its gradients against the definition with the logits in memory."""

import numpy as np
import onehot.numpy as F
import oracle
import pytest
from oracle import DTYPES, EPS, LAYOUTS, TINY, accumulator, assert_close, dtype_of, f64, guarded

N, H, V = 45, 19, 83
LOSSES = ("loss", "lse", "target_logit", "log_probability", "entropy", "argmax", "total_weight")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def problem(rng, name="float32", shape=(N,), ignored=0.2, ignore_index=-100):
    x = oracle.values(rng, shape + (H,), name)
    W = oracle.values(rng, (V, H), name, scale=0.5)
    y = oracle.zipf(rng, int(np.prod(shape)), V, ignored, ignore_index).reshape(shape)
    return x, W, y


def slack(x, W, expected, name, out_name, output, alpha=1.0):
    """Derived from the chains of the header. Logits: H steps of sums of at most L = alpha sum |x| |W|. What is made of
    them has their absolute error times a factor of some units; gradients are sums over classes or positions of du with its
    relative error (two logit errors and twenty operations), and their own chain."""
    eps = EPS[accumulator(name)]
    L = abs(alpha) * (np.abs(f64(x)) @ np.abs(f64(W)).T).max() + 1
    z = 2 * (H + 8) * eps * L  # error of a logit, and of lse
    rounded = EPS[out_name] * np.abs(expected[output]) + TINY[out_name]
    if output in GRADIENTS:
        du, terms = np.abs(expected["du"]), {"grad_input": V, "grad_weight": N, "grad_bias": N}[output]
        # bfloat16 products round du to bfloat16 first, where the CPU has them.
        relative = 4 * z + 40 * eps + terms * eps + (2.0**-8 if name == "bfloat16" else 0)
        du = du + du.max() * 1e-2  # options add terms that cancel
        flat = du.reshape(-1, V)
        magnitude = {
            "grad_input": du @ np.abs(f64(W)),
            "grad_weight": flat.T @ np.abs(f64(x)).reshape(-1, H),
            "grad_bias": flat.sum(0),
        }[output]
        return relative * abs(alpha) * magnitude + rounded
    if output == "total_weight":
        return 2 * N * EPS["float64"] * np.abs(expected[output]) + rounded
    return 8 * z * (1 if output != "loss" or np.ndim(expected["loss"]) == 0 else 4) + rounded


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", DTYPES)
def test_loss_and_gradients_at_once_and_later(rng, name, reduction):
    x, W, y = problem(rng, name)
    kind = accumulator(name)
    options = {
        "linear_bias": oracle.values(rng, (V,), name),
        "weight": rng.uniform(0.5, 1.5, V).astype(kind),
        "token_weight": rng.uniform(0.5, 1.5, y.shape).astype(kind),
        "label_smoothing": 0.1,
        "z_loss": 0.01,
        "softcap": 6.0,
        "logit_scale": 0.8,
        "reduction": reduction,
    }
    g = oracle.values(rng, y.shape if reduction == "none" else (), kind)
    upstream = {
        "grad_log_probability": oracle.values(rng, y.shape, kind),
        "grad_entropy": oracle.values(rng, y.shape, kind),
    }
    expected = oracle.linear_cross_entropy(x, W, y, grad_loss=g, **options, **upstream)
    everything = LOSSES + GRADIENTS
    result = F.linear_cross_entropy(x, W, y, outputs=everything, grad_loss=g, **options, **upstream)
    assert tuple(result) == everything
    for output in everything:
        out_name = kind if output in ("lse", "target_logit", "log_probability", "entropy") else name
        if output == "argmax":
            np.testing.assert_array_equal(result[output], expected[output])
            continue
        assert result[output].dtype == dtype_of(out_name), output
        assert_close(result[output], expected[output], slack(x, W, expected, name, out_name, output), output)
    # One output alone has the same bits, and so has the gradient later, from nothing.
    assert np.array_equal(F.linear_cross_entropy(x, W, y, **options), result["loss"])
    later = F.linear_cross_entropy_backward(g, x, W, y, outputs=GRADIENTS, **options, **upstream)
    lse = F.linear_cross_entropy_backward(
        g, x, W, y, outputs=GRADIENTS, lse=result["lse"], entropy=result["entropy"], **options, **upstream
    )
    for output in GRADIENTS:
        bound = slack(x, W, expected, name, name, output)
        np.testing.assert_array_equal(f64(later[output]), f64(result[output]))
        assert_close(lse[output], expected[output], 2 * bound, output)


@pytest.mark.parametrize(
    "option",
    [
        {"label_smoothing": 0.3},
        {"z_loss": 0.1},
        {"softcap": 2.0},
        {"logit_scale": -0.7},
        {"denominator": 3.0},
        {"ignore_index": 5},
        {"reduction": "sum"},
        {"weight": True},
        {"token_weight": True},
        {"linear_bias": True},
    ],
    ids=lambda option: next(iter(option)),
)
def test_each_option_alone(rng, option):
    """It reaches the operator: it changes the loss, and to what the definition says."""
    x, W, y = problem(rng)
    sizes = {"weight": V, "token_weight": N, "linear_bias": V}
    option = {k: rng.uniform(0.5, 1.5, sizes[k]).astype(np.float32) if v is True else v for k, v in option.items()}
    y[:3] = 5
    if "ignore_index" in option:
        y[y == -100] = 0
    expected = oracle.linear_cross_entropy(x, W, y, **option)
    outputs = ("loss",) + GRADIENTS
    result = F.linear_cross_entropy(x, W, y, outputs=outputs, **option)
    later = F.linear_cross_entropy_backward(1.0, x, W, y, outputs=GRADIENTS, **option)
    alpha = option.get("logit_scale", 1.0)
    for output in outputs:
        assert_close(
            result[output], expected[output], slack(x, W, expected, "float32", "float32", output, alpha), output
        )
    for output in GRADIENTS:
        np.testing.assert_array_equal(later[output], result[output])
    y_plain = np.where(y == 5, 0, y) if "ignore_index" in option else y
    assert result["loss"] != F.linear_cross_entropy(x, W, y_plain)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DTYPES)
def test_any_strides(rng, name, layout):
    x, W, y = problem(rng, name, (5, 9))
    outputs = ("loss",) + GRADIENTS
    plain = F.linear_cross_entropy(x, W, y, outputs=outputs)
    view = LAYOUTS[layout]
    out = {
        "grad_input": view(guarded(x.shape, x.dtype)),
        "grad_weight": view(guarded(W.shape, W.dtype)),
        "grad_bias": view(guarded((V,), W.dtype)),
        "loss": guarded((), W.dtype),
    }
    result = F.linear_cross_entropy(view(x), view(W), view(y), outputs=outputs, out=out)
    for output in outputs:
        assert result[output] is out[output]
        np.testing.assert_array_equal(f64(out[output]), f64(plain[output]))


def test_batches_of_positions_are_positions(rng):
    x, W, y = problem(rng, shape=(3, 5, 4))
    flat = F.linear_cross_entropy(x.reshape(-1, H), W, y.reshape(-1), outputs=("loss", "lse", "grad_input"))
    result = F.linear_cross_entropy(x, W, y, outputs=("loss", "lse", "grad_input"))
    assert result["loss"] == flat["loss"] and result["lse"].shape == y.shape and result["grad_input"].shape == x.shape
    np.testing.assert_array_equal(result["lse"].reshape(-1), flat["lse"])
    np.testing.assert_array_equal(result["grad_input"].reshape(-1, H), flat["grad_input"])


def test_one_position(rng):
    x, W, _ = problem(rng)
    result = F.linear_cross_entropy(x[0], W, 7, outputs=("loss", "lse", "argmax"))
    assert isinstance(result["lse"], np.float32) and isinstance(result["argmax"], np.int64)
    expected = oracle.linear_cross_entropy(x[0], W, 7)
    assert_close(result["lse"], expected["lse"], slack(x, W, expected, "float32", "float32", "lse"))
    assert_close(F.linear_cross_entropy(x[0], W, 7, reduction="none"), expected["loss"], 1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_upstream_gradient_is_one_unless_given(rng, reduction):
    x, W, y = problem(rng)
    ones = np.ones(y.shape if reduction == "none" else (), np.float32)
    default = F.linear_cross_entropy(x, W, y, reduction=reduction, outputs="grad_weight")
    given = F.linear_cross_entropy(x, W, y, reduction=reduction, outputs="grad_weight", grad_loss=ones)
    np.testing.assert_array_equal(default, given)
    doubled = F.linear_cross_entropy(x, W, y, reduction=reduction, outputs="grad_weight", grad_loss=2 * ones)
    np.testing.assert_array_equal(doubled, 2 * default)  # powers of two do not round
    assert np.abs(default).max() > 0
    if reduction != "none":
        for two in (2, 2.0, np.int64(2), np.array(2.0)):
            np.testing.assert_array_equal(
                F.linear_cross_entropy(x, W, y, reduction=reduction, outputs="grad_weight", grad_loss=two), doubled
            )
            np.testing.assert_array_equal(
                F.linear_cross_entropy_backward(two, x, W, y, reduction=reduction, outputs="grad_weight"), doubled
            )


@pytest.mark.parametrize("name", DTYPES)
def test_accumulate(rng, name):
    x, W, y = problem(rng, name)
    old = {"grad_input": oracle.values(rng, x.shape, name), "grad_weight": oracle.values(rng, W.shape, name)}
    expected = oracle.linear_cross_entropy(x, W, y)
    for function in (F.linear_cross_entropy, lambda *a, **o: F.linear_cross_entropy_backward(1.0, *a, **o)):
        out = {k: v.copy() for k, v in old.items()}
        assert function(x, W, y, outputs=tuple(out), out=out, accumulate=True)["grad_input"] is out["grad_input"]
        for k in out:
            total = f64(old[k]) + expected[k]
            steps = 2 * (V + N) * EPS[accumulator(name)] * np.abs(f64(old[k]))
            rounded = EPS[name] * np.abs(total) + TINY[name]
            assert_close(out[k], total, slack(x, W, expected, name, name, k) + steps + rounded, k)


@pytest.mark.parametrize("name", [n for n in DTYPES if n not in ("float32", "float64")])
def test_gradients_of_16_bits_in_float32(rng, name):
    x, W, y = problem(rng, name)
    outputs = ("loss", "grad_input", "grad_weight")
    wide = F.linear_cross_entropy(x, W, y, outputs=outputs, grad_dtype=np.float32, dtype=np.float32)
    narrow = F.linear_cross_entropy(x, W, y, outputs=outputs)
    later = F.linear_cross_entropy_backward(1, x, W, y, grad_dtype="float32")
    assert all(wide[k].dtype == np.float32 for k in outputs) and narrow["grad_weight"].dtype == dtype_of(name)
    for k in ("grad_input", "grad_weight"):
        np.testing.assert_array_equal(later[k], wide[k])
        np.testing.assert_array_equal(f64(wide[k].astype(dtype_of(name))), f64(narrow[k]))  # rounded once
    if name == "bfloat16":
        same = F.linear_cross_entropy(f64(x).astype("float32"), f64(W).astype("float32"), y, outputs="grad_weight")
        exact = F.linear_cross_entropy(x, W, y, outputs="grad_weight", grad_dtype="float32", reproducible=True)
        np.testing.assert_array_equal(exact, same)  # the products of float32


def test_workspace_and_skipping(rng):
    x, W, y = problem(rng)
    outputs = ("loss",) + GRADIENTS
    plain = F.linear_cross_entropy(x, W, y, outputs=outputs)
    for result in (
        F.linear_cross_entropy(x, W, y, outputs=outputs, max_workspace=0),
        F.linear_cross_entropy(x, W, y, outputs=outputs, max_workspace=1 << 30),
    ):
        for k in outputs:
            np.testing.assert_array_equal(result[k], plain[k])
    skipped = F.linear_cross_entropy(x, W, y, outputs=outputs, skip_below=10.0)
    assert skipped["loss"] == plain["loss"] and not np.array_equal(skipped["grad_weight"], plain["grad_weight"])
    with pytest.raises(ValueError, match="max_workspace"):
        F.linear_cross_entropy(x, W, y, max_workspace=-1)
    with pytest.raises(ValueError, match="skip_below"):
        F.linear_cross_entropy(x, W, y, skip_below=-1.0)


def test_where_no_position_counts(rng):
    x, W, y = problem(rng, ignored=1)
    assert np.isnan(F.linear_cross_entropy(x, W, y))
    assert F.linear_cross_entropy(x, W, y, zero_if_empty=True) == 0
    assert not F.linear_cross_entropy(x, W, y, outputs="grad_weight", zero_if_empty=True).any()


def test_bias_of_minus_infinity_takes_a_class_out(rng):
    x, W, y = problem(rng)
    bias = np.zeros(V, np.float32)
    bias[y[y >= 0][0] - 1] = -np.inf
    gone = np.isinf(bias)
    y[(y >= 0) & gone[np.maximum(y, 0)]] = -100
    result = F.linear_cross_entropy(x, W, y, linear_bias=bias, outputs=("loss", "grad_weight"))
    remap = np.cumsum(~gone) - 1
    fewer = F.linear_cross_entropy(x, W[~gone], np.where(y >= 0, remap[np.maximum(y, 0)], y))
    assert_close(result["loss"], fewer, 1e-5)
    assert not result["grad_weight"][gone].any()


def test_a_bad_target_is_named_and_nothing_is_written(rng):
    x, W, y = problem(rng, shape=(9, 5), ignored=0)
    y[1, 2] = -1
    out = {"loss": guarded((), np.float32), "grad_weight": guarded(W.shape, np.float32)}
    for function in (F.linear_cross_entropy, lambda *a, **o: F.linear_cross_entropy_backward(1.0, *a, **o)):
        asked = {k: v for k, v in out.items() if function is F.linear_cross_entropy or k != "loss"}
        with pytest.raises(IndexError, match=r"^target\[1, 2\] \(position 7\) = -1 is outside \[0, 83\)"):
            function(x, W, y, outputs=tuple(asked), out=asked)
        assert all(np.isnan(array).all() for array in out.values())


@pytest.mark.parametrize(
    "error, sentence, change",
    [
        (TypeError, "input", {"input": np.zeros((N, H), int)}),
        (TypeError, "linear_weight: ", {"linear_weight": np.zeros((V, H))}),
        (
            ValueError,
            "linear_weight: must have as many columns as input",
            {"linear_weight": np.zeros((V, H + 1), np.float32)},
        ),
        (ValueError, "weight: ", {"weight": np.zeros(V + 1, np.float32)}),
        (ValueError, "grad_loss: ", {"grad_loss": np.zeros(2, np.float32)}),
        (ValueError, "grad_entropy: ", {"grad_entropy": np.zeros(2, np.float32)}),
        (ValueError, "target", {"target": np.zeros(N + 1, int)}),
        (TypeError, "target", {"target": np.zeros(N, np.float32)}),
        (ValueError, "linear_bias: ", {"linear_bias": np.zeros(V + 1, np.float32)}),
        (TypeError, "logit_scale: must be a number, is 'x'", {"logit_scale": "x"}),
        (ValueError, "logit_scale", {"logit_scale": np.inf}),
        (ValueError, "accumulate: needs grad_weight in out, the array to add to", {"accumulate": True, "out": None}),
        (ValueError, "outputs: must be of loss, .*grad_bias, has 'gradient'", {"outputs": "gradient", "out": None}),
        (TypeError, "out: must be a dict of arrays by name", {"outputs": ("loss", "grad_weight")}),
        (ValueError, "out: must have outputs that are asked for", {"out": {"grad_bias": np.zeros(V, np.float32)}}),
        (TypeError, "grad_weight: ", {"out": guarded((V, H), np.float16)}),
        (ValueError, "grad_weight: ", {"out": guarded((V, H + 1), np.float32)}),
    ],
)
def test_refusals(rng, error, sentence, change):
    x, W, y = problem(rng)
    out = guarded((V, H), np.float32)
    arguments = {"input": x, "linear_weight": W, "target": y, "outputs": "grad_weight", "out": out}
    with pytest.raises(error, match=f"^({sentence})"):
        F.linear_cross_entropy(**(arguments | change))
    assert np.isnan(out).all()
