"""What counts as an array, and what does not: the module's functions, which onehot.numpy and the others share."""

import array
import inspect
import sys

import numpy as np
import onehot
import onehot.numpy as F
import oracle
import pytest
from onehot import _onehot as module
from oracle import guarded

N, V, D = 12, 7, 3


@pytest.fixture
def rng():
    return np.random.default_rng(2)


@pytest.fixture
def case(rng):
    return oracle.values(rng, (N, D)), oracle.zipf(rng, N, V), guarded((V, D), np.float32)


def expected(grad, indices):
    return F.embedding_backward(np.asarray(grad), np.asarray(indices), V)


# ---- arrays of other kinds


def test_buffers_of_the_standard_library(case):
    grad, indices, _ = case
    out = array.array("f", [np.nan] * (V * D))
    flat = np.frombuffer(out, np.float32)
    module.embedding_backward(
        memoryview(grad), array.array("q", indices.tolist()), memoryview(out).cast("B").cast("f", (V, D))
    )
    np.testing.assert_array_equal(flat.reshape(V, D), expected(grad, indices))
    for code in "bhilq":
        out = guarded((V, D), np.float32)
        module.embedding_backward(grad, array.array(code, indices.tolist()), out)
        np.testing.assert_array_equal(out, expected(grad, indices))
    module.embedding_backward(grad, bytes(indices.tolist()), out)  # bytes are uint8
    np.testing.assert_array_equal(out, expected(grad, indices))
    with pytest.raises(TypeError, match="indices: its dtype must be .*, is I"):
        module.embedding_backward(grad, array.array("I", indices.tolist()), out)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_tensors_of_torch(case):
    torch = pytest.importorskip("torch")
    grad, indices, _ = case
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        g = torch.from_numpy(grad).to(dtype)
        g.requires_grad_()  # no business of ours
        out = torch.full((D, V), torch.nan, dtype=dtype).t()
        module.embedding_backward(g, torch.from_numpy(indices), out)
        reference = torch.zeros(V, D, dtype=torch.float64).index_add_(0, torch.from_numpy(indices), g.detach().double())
        torch.testing.assert_close(out, reference.to(dtype), atol=0.05 if out.element_size() == 2 else 1e-5, rtol=0.01)
    with pytest.raises(TypeError, match="grad: must be in the memory of the CPU, is on meta"):
        module.embedding_backward(torch.empty(N, D, device="meta"), indices, out)
    with pytest.raises(TypeError, match="grad: its dtype must be .*, is torch.complex32"):
        module.embedding_backward(torch.empty(N, D, dtype=torch.complex32), indices, out)
    np.testing.assert_array_equal(
        F.embedding_backward(torch.from_numpy(grad), torch.from_numpy(indices), V), expected(grad, indices)
    )


def test_arrays_of_jax(case):
    jax = pytest.importorskip("jax")
    grad, indices, _ = case
    for name in ("float32", "float16", "bfloat16"):
        out = guarded((V, D), np.float32)
        g = jax.numpy.asarray(grad, name)
        module.embedding_backward(g, jax.numpy.asarray(indices, "int32"), out)
        np.testing.assert_array_equal(out, F.embedding_backward(np.asarray(g), indices, V, dtype="float32"))
    with pytest.raises(ValueError, match="^out: must be writable, is read-only"):
        module.embedding_backward(grad, indices, jax.numpy.zeros((V, D)))


class Dlpack:
    """Nothing but DLPack's protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack(case):
    grad, indices, out = case
    module.embedding_backward(Dlpack(grad), Dlpack(indices), Dlpack(out))
    np.testing.assert_array_equal(out, expected(grad, indices))
    with pytest.raises(TypeError, match="indices: its dtype must be"):
        module.embedding_backward(Dlpack(grad), Dlpack(indices.astype(np.uint32)), out)


@pytest.mark.skipif(oracle.bfloat16 is None, reason="ml_dtypes is not there")
def test_other_dtypes_of_ml_dtypes_are_refused(case):
    import ml_dtypes

    _, indices, _ = case
    with pytest.raises(TypeError, match="grad: its dtype must be .*, is float8_e5m2"):
        F.embedding_backward(np.zeros((N, D), ml_dtypes.float8_e5m2), indices, V)
    swapped = np.zeros((N, D), np.dtype(oracle.bfloat16).newbyteorder(">"))
    with pytest.raises(TypeError, match="grad: its dtype must be"):
        F.embedding_backward(swapped, indices, V)


# ---- what is refused


@pytest.mark.parametrize(
    "dtype", ["uint16", "uint32", "uint64", ">f4", ">i8", "longdouble", "object", "U3", "datetime64[s]", [("a", "f4")]]
)
def test_dtypes(case, dtype):
    grad, indices, out = case
    for function in (
        lambda bad: module.embedding_backward(bad, indices, out),
        lambda bad: module.embedding_backward(grad, indices, bad),
    ):
        with pytest.raises(TypeError, match="^(grad|out): its dtype must be float32, .* or complex128, is "):
            function(np.zeros((N, D), dtype))
    assert np.isnan(out).all()


@pytest.mark.parametrize("value", [None, "text", [1.0], object()])
def test_what_is_no_array(case, value):
    grad, indices, out = case
    with pytest.raises(TypeError, match="^indices: must be an array|missing the argument 'indices'"):
        module.embedding_backward(grad, value, out)
    assert np.isnan(out).all()


def test_axes(case):
    grad, indices, out = case
    eight = grad.reshape((1,) * 5 + (3, 4, D))
    np.testing.assert_array_equal(F.embedding_backward(eight, indices.reshape(3, 4), V), expected(grad, indices))
    with pytest.raises(ValueError, match="^grad: must have at most 8 axes, has 9"):
        F.embedding_backward(eight[None], indices, out=out)
    assert np.isnan(out).all()


def test_read_only_and_self_overlapping_outputs(case):
    grad, indices, out = case
    out.flags.writeable = False
    with pytest.raises(ValueError, match="^out: must be writable, is read-only"):
        F.embedding_backward(grad, indices, out=out)
    once = np.full(D, np.nan, np.float32)
    overlapping = np.lib.stride_tricks.as_strided(once, (V, D), (0, 4))
    with pytest.raises(ValueError, match="^out: must not map two elements to one address"):
        F.embedding_backward(grad, indices, out=overlapping)
    assert np.isnan(once).all() and np.isnan(out).all()


def test_read_only_inputs_are_read(case):
    grad, indices, _ = case
    want = expected(grad, indices)
    grad.flags.writeable = indices.flags.writeable = False
    np.testing.assert_array_equal(F.embedding_backward(grad, indices, V), want)


def test_elements_that_are_not_whole(case):
    grad, indices, out = case
    packed = np.zeros(N, np.dtype([("tag", "u1"), ("row", "f4", D)]))
    packed["row"] = grad
    with pytest.raises(
        ValueError, match="^grad: strides must be whole elements of 4 bytes, that of axis 0 is 13 bytes"
    ):
        F.embedding_backward(packed["row"], indices, out=out)
    aligned = np.zeros(N, np.dtype([("tag", "u4"), ("row", "f4", D)]))
    aligned["row"] = grad
    np.testing.assert_array_equal(F.embedding_backward(aligned["row"], indices, V), expected(grad, indices))
    raw = np.zeros(N * D * 4 + 1, np.uint8)
    with pytest.raises(ValueError, match="^grad: must be aligned to its elements of 4 bytes, is not"):
        F.embedding_backward(raw[1:].view(np.float32).reshape(N, D), indices, out=out)
    assert np.isnan(out).all()


# ---- outputs and inputs in one block of memory


def test_overlap(case):
    grad, indices, _ = case
    block = np.full((V + N, D), np.nan, np.float32)
    block[V:] = grad
    want = expected(grad, indices)
    with pytest.raises(ValueError, match="^out: must not overlap grad, does"):
        F.embedding_backward(block[V:], indices, out=block[1 : V + 1])
    assert np.isnan(block[:V]).all()
    F.embedding_backward(block[V:], indices, out=block[:V])  # side by side
    np.testing.assert_array_equal(block[:V], want)

    columns = np.full((N, 2 * D), np.nan, np.float32)
    columns[:, D:] = grad
    F.embedding_backward(columns[:, D:], indices, out=columns[:V, :D])  # interleaved, with no element in common
    np.testing.assert_array_equal(columns[:V, :D], want)
    with pytest.raises(ValueError, match="^out: must not overlap grad"):
        F.embedding_backward(columns[:, D:], indices, out=columns[:V, 1 : D + 1])
    reverse = columns[::-1]
    with pytest.raises(ValueError, match="^out: must not overlap grad"):
        F.embedding_backward(reverse[:, D:], indices, out=columns[:V, 1 : D + 1])
    F.embedding_backward(reverse[:, D:], indices, out=columns[:V, :D])
    np.testing.assert_array_equal(columns[:V, :D], expected(grad[::-1], indices))

    # The bytes of an element count, not only where it begins: halves of float32.
    halves = np.zeros((V, 2), np.float16)
    with pytest.raises(ValueError, match="^out: must not overlap indices"):
        F.embedding_backward(np.ones((V, 1), np.float16), halves.view(np.int32)[:, 0], out=halves[:, 1:])

    counts = np.zeros((V, 2), np.int64)
    with pytest.raises(ValueError, match="^counts: must not overlap out|^out: must not overlap counts"):
        F.embedding_backward(grad[:, :1].astype("f8"), indices, out=counts[:, :1].view("f8"), counts=counts[:, 0])


def test_overlap_of_several_outputs(rng):
    x, y = oracle.values(rng, (N, D)), oracle.zipf(rng, N, V)
    W = oracle.values(rng, (V, D))
    block = np.full((N + V, D), np.nan, np.float32)
    asked = ("grad_input", "grad_weight")
    result = F.linear_cross_entropy(x, W, y, outputs=asked, out={"grad_input": block[:N], "grad_weight": block[N:]})
    assert np.shares_memory(result["grad_weight"], block) and not np.isnan(block).any()
    with pytest.raises(ValueError, match="^grad_(input|weight): must not overlap grad_(input|weight), does"):
        F.linear_cross_entropy(x, W, y, outputs=asked, out={"grad_input": block[:N], "grad_weight": block[N - 1 : -1]})
    with pytest.raises(ValueError, match="^grad_weight: must not overlap linear_weight, does"):
        F.linear_cross_entropy(x, W, y, outputs="grad_weight", out=W)


def test_only_the_logits_may_be_replaced(rng):
    logits, y = oracle.values(rng, (N, V)), oracle.zipf(rng, N, V)
    want = F.cross_entropy_backward(1.0, logits, y)
    block = np.zeros((N + 1, V), np.float32)
    block[1:] = logits
    with pytest.raises(ValueError, match="^out: must not overlap input, does"):
        F.cross_entropy_backward(1.0, block[1:], y, out=block[:-1])
    with pytest.raises(ValueError, match="^out: must not overlap grad_entropy, does"):
        F.cross_entropy_backward(1.0, logits, y, grad_entropy=block[:-1, 0], out=block[:-1])
    assert F.cross_entropy_backward(1.0, block[1:], y, out=block[1:]) is not None
    np.testing.assert_array_equal(block[1:], want)


# ---- arguments of the module's functions


def test_names_of_arguments(case):
    grad, indices, out = case
    module.embedding_backward(out=out, indices=indices, grad=grad)
    np.testing.assert_array_equal(out, expected(grad, indices))
    name = "".join(["pad", "ding_idx"])  # a string that is not interned
    module.embedding_backward(grad, indices, out, **{name: int(indices[0])})
    assert not out[indices[0]].any()
    for call, sentence in [
        (lambda: module.embedding_backward(grad, indices), "missing the argument 'out'"),
        (lambda: module.embedding_backward(grad, indices, out, None), "takes 3 positional arguments but 4 were given"),
        (lambda: module.embedding_backward(grad, indices, out, scale=True), "unexpected keyword argument 'scale'"),
        (lambda: module.embedding_backward(grad, indices, out, grad=grad), "unexpected keyword argument 'grad'"),
        (lambda: module.nll_loss(grad, indices, outputs=[1]), "outputs: must be a dict of arrays by name"),
        (
            lambda: module.embedding_backward(grad, indices, out, options=("a",)),
            "options: must be a tuple of names and one",
        ),
        (lambda: module.embedding_backward(grad, indices, out, options=(("scale",), (1,))), "argument 'scale'"),
    ]:
        with pytest.raises(TypeError, match=sentence):
            call()
    options = (("padding_idx", "accumulate"), (None, False))
    module.embedding_backward(grad, indices, out, options=options)
    np.testing.assert_array_equal(out, expected(grad, indices))


def test_signatures():
    for name in F.__all__:
        public, inner = getattr(F, name), getattr(module, name)
        assert public.__doc__ and inspect.signature(public)
        names = [p.name for p in inspect.signature(inner).parameters.values() if p.kind is not p.VAR_KEYWORD]
        assert names and set(names) - {"loss"} <= set(inspect.signature(public).parameters), name


# ---- no copies, no references left behind


def calls(rng):
    """Good and bad ones of each function, with their arrays."""
    x, W, y = oracle.values(rng, (N, D)), oracle.values(rng, (V, D)), oracle.zipf(rng, N, V)
    logits, bad = oracle.values(rng, (N, V)), y + V
    g, out, rows = np.ones((), np.float32), np.empty((V, D), np.float32), np.empty((N, V), np.float32)
    return [
        ((W, y, bad), lambda y: F.embedding(W, y)),
        ((x, y, bad, out), lambda y: F.embedding_backward(x, y, out=out)),
        ((logits, y, bad), lambda y: F.nll_loss(logits, y, reduction="none")),
        ((g, logits, y, bad, rows), lambda y: F.nll_loss_backward(g, logits, y, out=rows)),
        ((logits, y, bad), lambda y: F.cross_entropy(logits, y, outputs=("loss", "lse"))),
        ((g, logits, y, bad, rows), lambda y: F.cross_entropy_backward(g, logits, y, out=rows)),
        ((x, W, y, bad, out), lambda y: F.linear_cross_entropy(x, W, y, outputs="grad_weight", out=out)),
        ((g, x, W, y, bad, out), lambda y: F.linear_cross_entropy_backward(g, x, W, y, outputs="grad_weight", out=out)),
        ((x, W, y, bad), lambda y: F.linear_cross_entropy_statistics(x, W, y)),
        ((x, W, y, bad), lambda y: F.linear_cross_entropy_statistics(x, W.astype("f8"), y)),
        ((x, W, y, bad), lambda y: F.linear_cross_entropy(x, x.T, y)),
        ((x, y, bad), lambda y: F.embedding_backward(x, y, out=x)),
    ]


@pytest.mark.parametrize("which", range(12))
def test_references_are_given_back(rng, which):
    arrays, call = calls(rng)[which]
    y, bad = next((arrays[i], arrays[i + 1]) for i in range(len(arrays)) if arrays[i].dtype == np.int64)

    def once():
        for target in (y, bad):
            try:
                call(target)
            except (IndexError, TypeError, ValueError):
                pass

    once()
    before = [sys.getrefcount(a) for a in arrays]
    for _ in range(50):
        once()
    assert [sys.getrefcount(a) for a in arrays] == before


def test_inputs_in_a_file_that_is_mapped(case, tmp_path):
    grad, indices, _ = case
    np.save(tmp_path / "grad.npy", grad)
    mapped = np.load(tmp_path / "grad.npy", mmap_mode="r")
    np.testing.assert_array_equal(F.embedding_backward(mapped, indices, V), expected(grad, indices))
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, (V, D))
    assert F.embedding_backward(mapped, indices, out=out) is out
    out.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(grad, indices))


# ---- threads, versions


@pytest.fixture
def threads():
    yield onehot.set_num_threads
    onehot.set_num_threads(0)


def test_number_of_threads(threads):
    default = onehot.get_num_threads()
    assert default >= 1
    threads(3)
    assert onehot.get_num_threads() == 3
    threads(0)
    assert onehot.get_num_threads() == default
    with pytest.raises(ValueError, match="set_num_threads: must not be negative, is -1"):
        threads(-1)
    assert onehot.get_num_threads() == default


def test_the_same_bits_for_any_number_of_threads_and_in_each_run(rng, threads):
    x, W, y = oracle.values(rng, (700, 64)), oracle.values(rng, (3000, 64)), oracle.zipf(rng, 700, 3000)
    logits = oracle.values(rng, (700, 3000))

    def everything():
        linear = F.linear_cross_entropy(x, W, y, outputs=("loss", "grad_input", "grad_weight", "grad_bias"))
        return [
            *linear.values(),
            F.embedding_backward(x, y, 3000),
            F.cross_entropy(logits, y),
            F.cross_entropy_backward(1.0, logits, y),
            F.nll_loss(logits, y),
            F.nll_loss_backward(1.0, logits, y),
        ]

    first = everything()
    for count in (1, 2, 3, 0):
        threads(count)
        for a, b in zip(first, everything()):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_what_there_is():
    assert onehot.__version__.count(".") == 2
    assert onehot.instruction_sets() and all(isinstance(name, str) for name in onehot.instruction_sets())
    operators = onehot.operators()
    assert set(F.__all__) <= set(operators) and all(names[-1] == "ref" for names in operators.values())


def test_lists_where_arrays_may_be():
    x, w, y = np.ones((6, 4), np.float32), np.eye(5, 4, dtype=np.float32), np.arange(6) % 5
    lse = np.full(6, 9, np.float32)
    for given, listed in (
        ({"lse": lse}, {"lse": lse.tolist()}),
        ({"lse": lse, "denominator": 3.0}, {"lse": lse.tolist(), "denominator": [3]}),
        ({"denominator": 3.0}, {"denominator": np.float16(3)}),
        ({"grad_log_probability": lse}, {"grad_log_probability": tuple(lse.tolist())}),
    ):
        a = onehot.numpy.linear_cross_entropy_backward(1.0, x, w, y, outputs="grad_weight", **given)
        b = onehot.numpy.linear_cross_entropy_backward(1.0, x, w, y, outputs="grad_weight", **listed)
        assert a.tobytes() == b.tobytes()
