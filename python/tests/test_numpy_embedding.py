"""onehot.numpy.embedding and embedding_backward against the product with a one-hot matrix."""

import numpy as np
import onehot.numpy as F
import oracle
import pytest
from oracle import DTYPES, EPS, LAYOUTS, TINY, accumulator, assert_close, dtype_of, f64, guarded

N, V, D = 61, 23, 5


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def bound(grad, indices, num_weights, name, out_name):
    """Sums of n terms: n roundings of at most the sum of magnitudes each in the accumulator, one of the result."""
    magnitudes, counts = oracle.embedding_backward(np.abs(f64(grad)), indices, num_weights)
    terms = counts[:, None] + 1  # + 1: division by the count
    return terms * EPS[accumulator(name)] * magnitudes + EPS[out_name] * magnitudes + TINY[out_name]


def test_oracle_by_hand():
    grad, counts = oracle.embedding_backward([[1, 2], [10, 20], [100, 200]], [2, 0, 2], 3)
    assert grad.tolist() == [[10, 20], [0, 0], [101, 202]] and counts.tolist() == [1, 0, 2]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DTYPES)
def test_forward_copies_rows_from_any_strides(rng, name, layout):
    weight = LAYOUTS[layout](oracle.values(rng, (V, D), name))
    indices = LAYOUTS[layout](oracle.zipf(rng, N, V).reshape(1, N))
    rows = F.embedding(weight, indices)
    assert rows.shape == (1, N, D) and rows.dtype == dtype_of(name)
    np.testing.assert_array_equal(rows.view("u1"), np.ascontiguousarray(oracle.embedding(weight, indices)).view("u1"))


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint8", "bool", "complex64", "complex128"])
def test_forward_moves_any_dtype(rng, dtype):
    weight = rng.integers(0, 2, (V, D)).astype(dtype)
    indices = oracle.zipf(rng, N, V)
    np.testing.assert_array_equal(F.embedding(weight, indices), weight[indices])


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "bool", "float64", "float32", "float16"])
def test_dtypes_of_indices(rng, dtype):
    indices = (oracle.zipf(rng, N, V) % (2 if dtype == "bool" else V)).astype(dtype)
    grad = oracle.values(rng, (N, D))
    if np.dtype(dtype).kind == "f":
        indices += 0.25  # truncated toward zero
    expected, _ = oracle.embedding_backward(grad, indices, V)
    assert_close(F.embedding_backward(grad, indices, V), expected, bound(grad, indices, V, "float32", "float32"))
    np.testing.assert_array_equal(F.embedding(grad[:V], indices), oracle.embedding(grad[:V], indices))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DTYPES)
def test_backward_of_any_strides(rng, name, layout):
    grad = LAYOUTS[layout](oracle.values(rng, (N, D), name))
    indices = LAYOUTS[layout](oracle.zipf(rng, N, V))
    out = LAYOUTS[layout](guarded((V, D), dtype_of(name)))
    assert F.embedding_backward(grad, indices, out=out) is out
    expected, _ = oracle.embedding_backward(grad, indices, V)
    assert_close(out, expected, bound(grad, indices, V, name, name))
    new = F.embedding_backward(grad, indices, V)
    assert new.dtype == dtype_of(name) and new.flags.c_contiguous
    np.testing.assert_array_equal(f64(new), f64(out))  # the same bits, whatever the strides


def test_backward_of_one_gradient_for_all_positions(rng):
    """Strides of zero, as broadcast_to makes them."""
    row = oracle.values(rng, (D,))
    indices = oracle.zipf(rng, N, V)
    grad = np.broadcast_to(row, (N, D))
    expected, _ = oracle.embedding_backward(grad, indices, V)
    assert_close(F.embedding_backward(grad, indices, V), expected, bound(grad, indices, V, "float32", "float32"))


def test_positions_of_several_axes(rng):
    grad, indices = oracle.values(rng, (3, 4, 5, D)), oracle.zipf(rng, 60, V).reshape(3, 4, 5)
    expected, _ = oracle.embedding_backward(grad, indices, V)
    assert_close(F.embedding_backward(grad, indices, V), expected, bound(grad, indices, V, "float32", "float32"))


@pytest.mark.parametrize("name", [n for n in DTYPES if n not in ("float32", "float64")])
def test_16_bits_are_summed_in_float32(name):
    """512 ones stop at 256 in bfloat16 and at 2048 in float16 where sums are not wider."""
    count = 5000
    ones = np.ones((count, 1), dtype_of(name))
    wide = F.embedding_backward(ones, np.zeros(count, int), 1, dtype=np.float32)
    assert wide.dtype == np.float32 and wide[0, 0] == count
    rounded = F.embedding_backward(ones, np.zeros(count, int), 1)
    assert rounded.dtype == dtype_of(name) and rounded[0, 0] == np.float32(count).astype(dtype_of(name))


@pytest.mark.parametrize("padding_idx", [3, -1, None])
@pytest.mark.parametrize("scale", [False, True])
def test_padding_and_scale(rng, padding_idx, scale):
    grad, indices = oracle.values(rng, (N, D)), oracle.zipf(rng, N, V)
    indices[:2] = 3, V - 1
    counts = np.full(V, -7)
    out = F.embedding_backward(grad, indices, V, padding_idx=padding_idx, scale_grad_by_freq=scale, counts=counts)
    expected, expected_counts = oracle.embedding_backward(grad, indices, V, padding_idx, scale)
    assert_close(out, expected, bound(grad, indices, V, "float32", "float32"))
    np.testing.assert_array_equal(counts, expected_counts)  # the padding row is counted


@pytest.mark.parametrize("name", DTYPES)
def test_accumulate_adds_and_keeps_the_other_rows(rng, name):
    grad, indices = oracle.values(rng, (N, D), name), oracle.zipf(rng, N, V)
    named = np.isin(np.arange(V), indices)
    assert not named.all()
    out = oracle.values(rng, (V, D), name)
    out[~named] = np.nan  # not even read
    old = out.copy()
    F.embedding_backward(grad, indices, out=out, accumulate=True)
    expected = (f64(old) + oracle.embedding_backward(grad, indices, V)[0])[named]
    slack = bound(grad, indices, V, name, name)[named] + 2 * EPS[name] * np.abs(f64(old[named]))
    assert_close(out[named], expected, slack)
    np.testing.assert_array_equal(out[~named].view("u1"), old[~named].view("u1"))


def test_accumulate_16_bit_gradients_in_float32(rng):
    grad, indices = oracle.values(rng, (N, D), "float16"), oracle.zipf(rng, N, V)
    out = np.zeros((V, D), np.float32)
    for _ in range(3):
        F.embedding_backward(grad, indices, out=out, accumulate=True)
    expected, _ = oracle.embedding_backward(grad, indices, V)
    # Each step adds a sum of float32, and rounds once more.
    assert_close(
        out, 3 * expected, 3 * bound(grad, indices, V, "float16", "float32") + 3 * EPS["float32"] * np.abs(expected)
    )


def test_empty():
    assert F.embedding(np.zeros((0, 3), np.float32), np.zeros(0, int)).shape == (0, 3)
    np.testing.assert_array_equal(
        F.embedding_backward(np.zeros((0, 3), np.float32), np.zeros(0, int), 2), np.zeros((2, 3))
    )


def test_lists_are_arrays():
    assert F.embedding([[1.0, 2.0], [3.0, 4.0]], [1, 0]).tolist() == [[3, 4], [1, 2]]
    assert F.embedding_backward([[1.0], [2.0]], [1, 1], 2).tolist() == [[0], [3]]


def test_outputs_are_what_was_given(rng):
    weight, indices = oracle.values(rng, (V, D)), oracle.zipf(rng, N, V)
    out = guarded((N, D), np.float32)
    assert F.embedding(weight, indices, out=out) is out
    np.testing.assert_array_equal(out, weight[indices])
    # Only the out that was given has to have the shape of the positions flattened.
    flat = guarded((2, 3, D), np.float32)
    assert F.embedding(weight, indices[:6].reshape(2, 3), out=flat) is flat


def test_num_weights_goes_with_out(rng):
    grad, indices = oracle.values(rng, (N, D)), oracle.zipf(rng, N, V)
    F.embedding_backward(grad, indices, V, out=np.empty((V, D), np.float32))
    with pytest.raises(ValueError, match=r"num_weights: must be the rows of out, whose shape is \(23, 5\), is 22"):
        F.embedding_backward(grad, indices, V - 1, out=np.empty((V, D), np.float32))
    with pytest.raises(ValueError, match="num_weights: must be given where out is not"):
        F.embedding_backward(grad, indices)
    with pytest.raises(ValueError, match="num_weights: must not be negative, is -1"):
        F.embedding_backward(grad, indices, -1)
    with pytest.raises(ValueError, match="accumulate: needs out, the array to add to"):
        F.embedding_backward(grad, indices, V, accumulate=True)


def test_a_bad_index_is_named_and_nothing_is_written(rng):
    grad, weight = oracle.values(rng, (2, 3, D)), oracle.values(rng, (V, D))
    indices = np.array([[0, 1, 2], [V, 4, -1]])
    out, counts = guarded((V, D), np.float32), np.full(V, -7)
    with pytest.raises(IndexError, match=r"indices\[1, 0\] \(position 3\) = 23 is outside \[0, 23\)"):
        F.embedding_backward(grad, indices, out=out, counts=counts)
    assert np.isnan(out).all() and (counts == -7).all()
    rows = guarded((2, 3, D), np.float32)
    with pytest.raises(IndexError, match=r"indices\[1, 0\] \(position 3\) = 23"):
        F.embedding(weight, indices, out=rows)
    assert np.isnan(rows).all()


@pytest.mark.parametrize(
    "error, sentence, change",
    [
        (TypeError, "grad", {"grad": np.zeros((3, D), int)}),
        (TypeError, "indices: its dtype must be .*, is uint32", {"indices": np.zeros(3, np.uint32)}),
        (TypeError, "indices", {"indices": np.zeros(3, np.complex64)}),
        (TypeError, "grad: its dtype must be .*, is >f4", {"grad": np.zeros((3, D), ">f4")}),
        (TypeError, "grad: its dtype must be .*, is object", {"grad": np.zeros((3, D), object)}),
        (ValueError, "grad: must have one row for each of the 4 indices", {"indices": np.zeros(4, int)}),
        (ValueError, "out", {"out": np.empty((V, D + 1), np.float32)}),
        (TypeError, "out", {"out": np.empty((V, D))}),
        (ValueError, "padding_idx", {"padding_idx": V}),
        (TypeError, "padding_idx: must be an integer, is 1.5", {"padding_idx": 1.5}),
        (ValueError, "padding_idx: must fit 64 bits, is 1267650600228229401496703205376", {"padding_idx": 2**100}),
        (TypeError, "counts", {"counts": np.empty(V, np.int32)}),
        (ValueError, "counts", {"counts": np.empty(V + 1, np.int64)}),
        (TypeError, "out: must be an array", {"out": [[0.0] * D] * V}),
    ],
)
def test_refusals(error, sentence, change):
    arguments = {
        "grad": np.ones((3, D), np.float32),
        "indices": np.array([1, 2, 1]),
        "out": guarded((V, D), np.float32),
    }
    given = arguments["out"]
    with pytest.raises(error, match=f"^{sentence}"):
        F.embedding_backward(**(arguments | change))
    assert np.isnan(given).all()
