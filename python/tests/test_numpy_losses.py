"""onehot.numpy.nll_loss and cross_entropy, and their gradients, against their definitions in float64."""

import numpy as np
import onehot.numpy as F
import oracle
import pytest
from oracle import DTYPES, EPS, LAYOUTS, TINY, accumulator, assert_close, dtype_of, f64, guarded

# Input, class axis: one position, rows, an image with planes of classes and with classes last.
SHAPES = [((7,), 1), ((37, 11), 1), ((3, 11, 5, 4), 1), ((3, 5, 4, 11), -1)]
OUTPUTS = ("loss", "lse", "log_probability", "entropy", "argmax", "total_weight")


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def problem(rng, shape=(37, 11), axis=1, name="float32", ignored=0.3, ignore_index=-100):
    axis = axis % len(shape) if len(shape) > 1 else 0
    positions = shape[:axis] + shape[axis + 1 :]
    target = oracle.zipf(rng, int(np.prod(positions)), shape[axis], ignored, ignore_index).reshape(positions)
    if target.ndim == 0:
        target[()] = 3
    return oracle.values(rng, shape, name, scale=3), target


def log_softmax(input, axis, name):
    z = f64(input)
    return (z - np.log(np.exp(z).sum(axis, keepdims=True))).astype(dtype_of(name))


def weights(rng, C, target, name):
    kind = accumulator(name)
    return {
        "weight": rng.uniform(0.2, 2, C).astype(kind),
        "token_weight": rng.uniform(0.2, 2, target.shape).astype(kind),
    }


def loss_bound(expected, lse, name, out_name, factor=1.0):
    """Per position the header gives 4 + C / 1024 units of float32 of the larger of 1, |loss| and |lse|, for cross entropy;
    a few operations more with options. Positions are summed up in float64, their factors at most `factor`."""
    largest = max(1.0, np.abs(lse).max())
    return 16 * 2 * EPS[accumulator(name)] * largest * factor + EPS[out_name] * np.abs(expected) + TINY[out_name]


def test_oracle_by_hand():
    """Logits 0 and ln 3: probabilities 1/4 and 3/4."""
    logits, target = [[0, np.log(3.0)]], [0]
    result = oracle.cross_entropy(logits, target)
    assert np.isclose(result["loss"], np.log(4)) and np.isclose(result["lse"][0], np.log(4))
    assert np.isclose(result["entropy"][0], np.log(4) - 0.75 * np.log(3)) and result["argmax"][0] == 1
    np.testing.assert_allclose(oracle.cross_entropy_backward(1, logits, target), [[-0.75, 0.75]])
    assert oracle.nll_loss([[-1, -3]], [1], [1, 2])["loss"] == 3  # 2 * 3 / 2
    assert oracle.nll_loss_backward(1, [[-1, -3]], [1], [1, 2], reduction="sum")[0].tolist() == [[0, -2]]


# ---- nll_loss


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape, axis", SHAPES)
@pytest.mark.parametrize("name", DTYPES)
def test_nll_loss(rng, name, shape, axis, reduction):
    input, target = problem(rng, shape, axis, name)
    input = log_softmax(input, axis if input.ndim > 1 else 0, name)
    options = weights(rng, input.shape[axis if input.ndim > 1 else 0], target, name)
    options |= {"reduction": reduction, "class_axis": axis}
    result = F.nll_loss(input, target, outputs=("loss", "total_weight"), **options)
    expected = oracle.nll_loss(input, target, **options)
    assert result["loss"].dtype == dtype_of(name)
    # Terms, all of one sign, and sums are in float64, here and there; then there is one rounding.
    relative = EPS[name] + 2 * (target.size + 4) * EPS["float64"]
    for output in expected:
        assert_close(result[output], expected[output], relative * np.abs(expected[output]) + TINY[name], output)

    g = oracle.values(rng, target.shape if reduction == "none" else ())
    out = guarded(input.shape, input.dtype)
    assert F.nll_loss_backward(g, input, target, out=out, **options) is out
    gradient, at = oracle.nll_loss_backward(g, input, target, **options)
    # Three operations on rounded operands, each 4 at most; one rounding of the result.
    assert_close(
        out, gradient, 8 * EPS[accumulator(name)] * np.abs(gradient) + EPS[name] * np.abs(gradient) + TINY[name]
    )
    compact = F.nll_loss_backward(g, input, target, compact=True, **options)
    assert compact.shape == target.shape
    assert_close(compact, at, 8 * EPS[accumulator(name)] * np.abs(at) + EPS[name] * np.abs(at) + TINY[name])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nll_loss_of_any_strides(rng, layout):
    input, target = problem(rng, (9, 11, 8))
    plain = F.nll_loss(input, target), F.nll_loss_backward(1.0, input, target)
    input, target = LAYOUTS[layout](input), LAYOUTS[layout](target)
    out = LAYOUTS[layout](guarded(input.shape, np.float32))
    assert F.nll_loss(input, target) == plain[0]
    np.testing.assert_array_equal(F.nll_loss_backward(1.0, input, target, out=out), plain[1])


def test_nll_loss_backward_divides_by_what_it_is_given_or_computes(rng):
    input, target = problem(rng)
    weight = weights(rng, 11, target, "float32")["weight"]
    D = F.nll_loss(input, target, weight, outputs="total_weight", dtype="float64")
    assert isinstance(D, np.float64)
    computed = F.nll_loss_backward(0.7, input, target, weight)
    np.testing.assert_array_equal(computed, F.nll_loss_backward(0.7, input, target, weight, total_weight=D))
    np.testing.assert_array_equal(
        F.nll_loss_backward(0.7, input, target, weight, total_weight=2.0),
        F.nll_loss_backward(np.float32(0.7) / np.float32(1), input, target, weight, total_weight=np.array([2.0])),
    )
    assert np.abs(computed).max() > 0


def test_nll_loss_backward_adds(rng):
    input, target = problem(rng)
    old = oracle.values(rng, input.shape)
    old[:, 0] = np.nan  # kept where no target is, whatever it is
    target[target == 0] = 1
    out = old.copy()
    F.nll_loss_backward(1.5, input, target, reduction="sum", out=out, accumulate=True)
    gradient, _ = oracle.nll_loss_backward(1.5, input, target, reduction="sum")
    hit = gradient != 0
    np.testing.assert_array_equal(out[~hit], old[~hit])
    assert_close(out[hit], (old + gradient)[hit], 2 * EPS["float32"] * (np.abs(old) + np.abs(gradient))[hit])


# ---- cross_entropy

CASES = {
    "plain": {},
    "smoothing": {"label_smoothing": 0.1},
    "z_loss": {"z_loss": 0.01},
    "softcap": {"softcap": 5.0},
    "all": {"label_smoothing": 0.2, "z_loss": 0.02, "softcap": 4.0, "denominator": 7.5},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_cross_entropy(rng, shape, axis, name, reduction, case):
    input, target = problem(rng, shape, axis, name)
    options = weights(rng, input.shape[axis if input.ndim > 1 else 0], target, name)
    options |= CASES[case] | {"reduction": reduction, "class_axis": axis}
    result = F.cross_entropy(input, target, outputs=OUTPUTS, **options)
    expected = oracle.cross_entropy(input, target, **options)
    statistic = accumulator(name)
    assert result["loss"].dtype == dtype_of(name) and result["lse"].dtype == statistic
    assert result["argmax"].dtype == np.int64
    np.testing.assert_array_equal(result["argmax"], expected["argmax"])
    # Sum of the factors of all positions: w and t below 2, zeta |lse| below 1, and what mean divides by.
    factor = 8.0 if reduction == "none" else 8.0 * max(target.size, 1)
    for output in ("lse", "log_probability", "entropy"):
        assert_close(
            result[output], expected[output], loss_bound(expected[output], expected["lse"], name, statistic, 2), output
        )
    assert_close(
        result["loss"], expected["loss"], loss_bound(expected["loss"], expected["lse"], name, name, factor), "loss"
    )
    relative = EPS[name] + 2 * target.size * EPS["float64"]  # sums are in float64
    assert_close(result["total_weight"], expected["total_weight"], relative * np.abs(expected["total_weight"]))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_cross_entropy_backward(rng, shape, axis, name, reduction, case):
    input, target = problem(rng, shape, axis, name)
    options = weights(rng, input.shape[axis if input.ndim > 1 else 0], target, name)
    options |= CASES[case] | {"reduction": reduction, "class_axis": axis}
    kind = accumulator(name)
    g = oracle.values(rng, target.shape if reduction == "none" else (), kind)
    r, h = oracle.values(rng, target.shape, kind), oracle.values(rng, target.shape, kind)
    upstream = {"grad_log_probability": r, "grad_entropy": h}
    expected = oracle.cross_entropy_backward(g, input, target, **options, **upstream)
    lse = F.cross_entropy(input, target, outputs="lse", **options)
    # Terms of at most (|g| + |r| + |h| |z|) times weights of 4 at most; some twenty operations on them, and a rounded lse.
    positions = np.abs(f64(g)) * 8 + np.abs(f64(r)) + np.abs(f64(h)) * 20
    slack = (
        40 * EPS[kind] * 10 * np.expand_dims(np.broadcast_to(positions, target.shape), axis if input.ndim > 1 else 0)
    )
    slack = slack + EPS[name] * np.abs(expected) + TINY[name]
    for known in (None, lse):
        out = guarded(input.shape, input.dtype)
        assert F.cross_entropy_backward(g, input, target, lse=known, out=out, **options, **upstream) is out
        assert_close(out, expected, slack)
    in_place = input.copy()
    assert F.cross_entropy_backward(g, in_place, target, out=in_place, **options, **upstream) is in_place
    np.testing.assert_array_equal(in_place, F.cross_entropy_backward(g, input, target, **options, **upstream))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cross_entropy_of_any_strides(rng, layout):
    input, target = problem(rng, (9, 11, 8))
    plain = F.cross_entropy(input, target), F.cross_entropy_backward(1.0, input, target)
    input, target = LAYOUTS[layout](input), LAYOUTS[layout](target)
    out = LAYOUTS[layout](guarded(input.shape, np.float32))
    assert F.cross_entropy(input, target) == plain[0]
    np.testing.assert_array_equal(F.cross_entropy_backward(1.0, input, target, out=out), plain[1])
    in_place = LAYOUTS[layout](input.copy())
    np.testing.assert_array_equal(F.cross_entropy_backward(1.0, in_place, target, out=in_place[...]), plain[1])


def test_cross_entropy_of_broadcast_logits(rng):
    """Strides of zero: the same logits everywhere."""
    row = oracle.values(rng, (11,))
    input, target = np.broadcast_to(row, (37, 11)), problem(rng)[1]
    assert F.cross_entropy(input, target) == F.cross_entropy(input.copy(), target)


# ---- what the two have in common


@pytest.mark.parametrize(
    "function, definition", [(F.nll_loss, oracle.nll_loss), (F.cross_entropy, oracle.cross_entropy)]
)
class TestBoth:
    def test_ignore_index_may_be_a_class(self, rng, function, definition):
        input, target = problem(rng, ignored=0)
        result = function(input, target, ignore_index=2)
        assert (target == 2).any() and result != function(input, target)
        assert_close(result, definition(input, target, ignore_index=2)["loss"], 1e-5)

    def test_what_is_ignored_is_not_looked_at(self, rng, function, definition):
        input, target = problem(rng)
        whole = function(input, target)
        input[target == -100] = np.nan
        assert function(input, target) == whole and np.isfinite(whole)

    def test_where_no_position_counts(self, rng, function, definition):
        input, target = problem(rng, ignored=1)
        assert np.isnan(function(input, target))
        assert function(input, target, zero_if_empty=True) == 0
        assert function(input, target, denominator=3) == 0
        assert function(input, target, reduction="sum") == 0

    @pytest.mark.parametrize("denominator", [4, 4.0, np.int64(4), np.array(4), np.float32(4), np.array([4.0])])
    def test_denominator_of_any_kind(self, rng, function, definition, denominator):
        input, target = problem(rng)
        result = function(input, target, denominator=denominator)
        total = function(input, target, reduction="sum", dtype="float64")
        assert_close(result, total / 4, 2 * EPS["float32"] * np.abs(total))
        assert function(input, target, reduction="sum", denominator=denominator) == function(
            input, target, reduction="sum"
        )

    @pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
    def test_dtypes_of_target(self, rng, function, definition, dtype):
        input, target = problem(rng, ignore_index=100)
        whole = function(input, target, ignore_index=100)
        assert function(input, target.astype(dtype), ignore_index=100) == whole

    def test_outputs_by_name(self, rng, function, definition):
        input, target = problem(rng)
        loss = function(input, target)
        assert isinstance(loss, np.float32)
        total = function(input, target, outputs="total_weight")
        both = function(input, target, outputs=["loss", "total_weight"])
        assert both == {"loss": loss, "total_weight": total} and list(both) == ["loss", "total_weight"]
        assert function(input, target, outputs=("loss",)) == {"loss": loss}
        each = function(input, target, reduction="none")
        assert each.base is None and each.shape == target.shape

    def test_out_of_one_output_and_of_several(self, rng, function, definition):
        input, target = problem(rng)
        loss, total = guarded((), np.float32), guarded((1,), np.float32)
        assert function(input, target, out=loss) is loss and loss == function(input, target)
        result = function(input, target, outputs=("loss", "total_weight"), out={"total_weight": total})
        assert result["total_weight"] is total and result["loss"] == loss and isinstance(result["loss"], np.float32)
        named = function(input, target, out={"loss": loss})
        assert named is loss
        with pytest.raises(
            TypeError, match="out: must be a dict of arrays by name where outputs are several, is ndarray"
        ):
            function(input, target, outputs=("loss", "total_weight"), out=loss)
        with pytest.raises(ValueError, match="out: must have outputs that are asked for, loss, has 'total_weight'"):
            function(input, target, out={"total_weight": total})
        with pytest.raises(ValueError, match=r"outputs: must be of loss, .*total_weight, has 'mean'"):
            function(input, target, outputs="mean")
        with pytest.raises(ValueError, match="outputs: must be of .*, has 'mean'"):
            function(input, target, outputs=("loss", "mean"))

    @pytest.mark.parametrize("name", DTYPES)
    def test_dtype_of_new_outputs(self, rng, function, definition, name):
        input, target = problem(rng, name=name)
        for dtype in ("float64", np.float32, np.dtype("float64")):
            if name == "float64" and dtype is np.float32:
                continue
            result = function(input, target, dtype=dtype, outputs=("loss", "total_weight"))
            assert result["loss"].dtype == dtype and result["total_weight"].dtype == dtype
        narrow, wide = function(input, target), function(input, target, dtype="float64")
        assert narrow == wide.astype(dtype_of(name))  # rounded once

    def test_lists(self, function, definition):
        result = function([[0.0, 1.0], [2.0, 0.0]], [1, 0], [1.0, 3.0], token_weight=[1, 2])
        expected = definition([[0.0, 1.0], [2.0, 0.0]], [1, 0], [1.0, 3.0], token_weight=[1, 2])["loss"]
        assert_close(result, expected, 1e-12)
        single = function(np.float32([[0, 1], [2, 0]]), [1, 0], [1.0, 3.0], token_weight=[1, 2])
        assert isinstance(single, np.float32)
        assert_close(single, expected, 1e-5)

    @pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
    def test_a_bad_target_is_named_and_nothing_is_written(self, rng, function, definition, reduction):
        input, target = problem(rng, (3, 11, 4), ignored=0)
        target[1, 2] = 11
        out = guarded(target.shape if reduction == "none" else (), np.float32)
        with pytest.raises(IndexError, match=r"^target\[1, 2\] \(position 6\) = 11 is outside \[0, 11\)"):
            function(input, target, reduction=reduction, out=out)
        assert np.isnan(out).all()
        backward = {F.nll_loss: F.nll_loss_backward, F.cross_entropy: F.cross_entropy_backward}[function]
        gradient = guarded(input.shape, np.float32)
        g = np.ones(target.shape if reduction == "none" else (), np.float32)
        with pytest.raises(IndexError, match=r"^target\[1, 2\] \(position 6\) = 11"):
            backward(g, input, target, reduction=reduction, out=gradient)
        assert np.isnan(gradient).all()

    @pytest.mark.parametrize(
        "error, sentence, change",
        [
            (TypeError, "input: its dtype must be .*, is uint16", {"input": np.zeros((37, 11), np.uint16)}),
            (TypeError, "input", {"input": np.zeros((37, 11), int)}),
            (TypeError, "target", {"target": np.zeros(37, np.float32)}),
            (TypeError, "target: its dtype must be .*, is uint32", {"target": np.zeros(37, np.uint32)}),
            (ValueError, "target|input", {"target": np.zeros(36, int)}),
            (ValueError, "weight", {"weight": np.ones(10, np.float32)}),
            (TypeError, "weight", {"weight": np.ones(11)}),
            (ValueError, "token_weight", {"token_weight": np.ones(36, np.float32)}),
            (ValueError, "denominator", {"denominator": np.ones(2)}),
            (ValueError, 'reduction: must be "none", "mean" or "sum", is "avg"', {"reduction": "avg"}),
            (TypeError, "reduction: must be a string, is 1", {"reduction": 1}),
            (TypeError, "ignore_index: must be an integer, is 0.5", {"ignore_index": 0.5}),
            (ValueError, "class_axis", {"class_axis": 2}),
            (ValueError, "class_axis", {"class_axis": -(2**70) // 2**10}),
            (ValueError, "loss", {"out": np.zeros(37, np.float32)}),
            (TypeError, "loss", {"out": np.zeros((), np.float16)}),
            (TypeError, "unexpected keyword|.*got an unexpected keyword argument 'axis'", {"axis": 1}),
        ],
    )
    def test_refusals(self, rng, function, definition, error, sentence, change):
        input, target = problem(rng)
        out = guarded((), np.float32)
        with pytest.raises(error, match=f"^({sentence})"):
            function(**({"input": input, "target": target, "out": out} | change))
        assert np.isnan(out)


@pytest.mark.parametrize("option", ["label_smoothing", "z_loss", "softcap"])
def test_options_of_cross_entropy_are_checked(rng, option):
    input, target = problem(rng)
    for value in (-0.5, np.nan):
        with pytest.raises(ValueError, match=option):
            F.cross_entropy(input, target, **{option: value})
    with pytest.raises(TypeError, match=f"{option}: must be a number, is 'x'"):
        F.cross_entropy(input, target, **{option: "x"})


def test_refusals_of_gradients(rng):
    input, target = problem(rng)
    out = guarded(input.shape, np.float32)
    with pytest.raises(ValueError, match=r"out: must have the shape of input, \(37, 11\), has \(37, 12\)"):
        F.nll_loss_backward(1.0, input, target, out=np.empty((37, 12), np.float32))
    with pytest.raises(ValueError, match=r"out: must have the shape of target, \(37,\), has \(37, 11\)"):
        F.nll_loss_backward(1.0, input, target, out=out, compact=True)
    with pytest.raises(ValueError, match="accumulate: needs out"):
        F.nll_loss_backward(1.0, input, target, accumulate=True)
    with pytest.raises(ValueError, match="grad_output"):
        F.nll_loss_backward(np.ones(3, np.float32), input, target, reduction="none", out=out)
    with pytest.raises(TypeError, match="grad_output"):
        F.nll_loss_backward(np.ones(37), input, target, reduction="none", out=out)
    with pytest.raises(ValueError, match="grad_loss"):
        F.cross_entropy_backward(np.ones(37, np.float32), input, target, out=out)
    with pytest.raises(ValueError, match="lse"):
        F.cross_entropy_backward(1.0, input, target, lse=np.ones(3, np.float32), out=out)
    assert np.isnan(out).all()


def test_numbers_as_gradients(rng):
    input, target = problem(rng)
    for backward in (F.nll_loss_backward, F.cross_entropy_backward):
        whole = backward(np.float32(2), input, target)
        for g in (2, 2.0, np.float64(2), np.int64(2), np.array(2.0), np.array(2)):
            np.testing.assert_array_equal(backward(g, input, target), whole)
    np.testing.assert_array_equal(F.cross_entropy_backward(None, input, target), np.zeros_like(input))
