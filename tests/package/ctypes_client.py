"""The C face from Python, through ctypes and the names and numbers of the interface alone.

ctypes_client.py [DIRECTORY]: the libraries are taken from DIRECTORY, else by their bare names.
"""
import ctypes as c
import os
import sys

FLOAT, UINT8, INT64, ND = 0, 4, 9, 2
MEAN = 1
HUGE_FIRST, HOST_TO_DEVICE, DEVICE_TO_HOST = 0, 1, 2
NO_PADDING = 2**64 - 1

directory = sys.argv[1] if len(sys.argv) > 1 else ""
runtime, meta, operators = (
    c.CDLL(os.path.join(directory, name)) for name in ("libascendcl.so", "libnnopbase.so", "libopapi.so"))

runtime.aclGetRecentErrMsg.restype = c.c_char_p
runtime.aclrtMalloc.argtypes = [c.POINTER(c.c_void_p), c.c_size_t, c.c_int]
runtime.aclrtMemcpy.argtypes = [c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t, c.c_int]
runtime.aclrtFree.argtypes = [c.c_void_p]
runtime.aclrtCreateStream.argtypes = [c.POINTER(c.c_void_p)]
runtime.aclrtSynchronizeStream.argtypes = [c.c_void_p]
runtime.aclrtDestroyStream.argtypes = [c.c_void_p]
meta.aclCreateTensor.restype = c.c_void_p
meta.aclCreateTensor.argtypes = [c.POINTER(c.c_int64), c.c_uint64, c.c_int, c.POINTER(c.c_int64), c.c_int64, c.c_int,
                                 c.POINTER(c.c_int64), c.c_uint64, c.c_void_p]
meta.aclDestroyTensor.argtypes = [c.c_void_p]
phase1 = operators.aclnnEmbeddingDenseBackwardGetWorkspaceSize
phase1.argtypes = [c.c_void_p, c.c_void_p, c.c_uint64, c.c_uint64, c.c_bool, c.c_void_p, c.POINTER(c.c_uint64),
                   c.POINTER(c.c_void_p)]
phase2 = operators.aclnnEmbeddingDenseBackward
phase2.argtypes = [c.c_void_p, c.c_uint64, c.c_void_p, c.c_void_p]
nll_phase1, nll_phase2 = operators.aclnnNLLLoss2dGetWorkspaceSize, operators.aclnnNLLLoss2d
nll_phase1.argtypes = [c.c_void_p] * 3 + [c.c_int64] * 2 + [c.c_void_p] * 2 + [c.POINTER(c.c_uint64), c.POINTER(c.c_void_p)]
nll_phase2.argtypes = phase2.argtypes
nll_backward_phase1 = operators.aclnnNLLLoss2dBackwardGetWorkspaceSize
nll_backward_phase1.argtypes = [c.c_void_p] * 4 + nll_phase1.argtypes[3:]
nll_backward_phase2 = operators.aclnnNLLLoss2dBackward
nll_backward_phase2.argtypes = phase2.argtypes
fused_phase1 = operators.aclnnFusedCrossEntropyLossWithMaxSumGetWorkspaceSize
fused_phase2 = operators.aclnnFusedCrossEntropyLossWithMaxSum
fused_phase2.argtypes = phase2.argtypes


def check(status):
    if status != 0:
        raise RuntimeError(f"status {status}: {(runtime.aclGetRecentErrMsg() or b'no message').decode()}")


def device_copy(values):
    address = c.c_void_p()
    check(runtime.aclrtMalloc(c.byref(address), c.sizeof(values), HUGE_FIRST))
    check(runtime.aclrtMemcpy(address, c.sizeof(values), values, c.sizeof(values), HOST_TO_DEVICE))
    return address


def tensor(address, dtype, *dims):
    extents = (c.c_int64 * len(dims))(*dims)
    handle = meta.aclCreateTensor(extents, len(dims), dtype, None, 0, ND, extents, len(dims), address)
    if not handle:
        raise RuntimeError("aclCreateTensor returned null")
    return handle


def run(get_workspace_size, launch, *arguments):
    """Both phases on a stream of their own."""
    stream, executor, workspace, size = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_uint64()
    check(runtime.aclrtCreateStream(c.byref(stream)))
    check(get_workspace_size(*arguments, c.byref(size), c.byref(executor)))
    if size.value:
        check(runtime.aclrtMalloc(c.byref(workspace), size, HUGE_FIRST))
    check(launch(workspace, size, executor, stream))
    check(runtime.aclrtSynchronizeStream(stream))
    if size.value:
        check(runtime.aclrtFree(workspace))
    check(runtime.aclrtDestroyStream(stream))


def floats(address, count):
    host = (c.c_float * count)()
    check(runtime.aclrtMemcpy(host, c.sizeof(host), address, c.sizeof(host), DEVICE_TO_HOST))
    return list(host)


def release(tensors, memory):
    for handle in tensors:
        meta.aclDestroyTensor(handle)
    for address in memory:
        check(runtime.aclrtFree(address))


def embedding_gradient(grad, indices, rows, padding=NO_PADDING, by_frequency=False):
    """Out, as a list of rows, of gradient rows `grad` at `indices` of a table with `rows` rows."""
    width = len(grad[0])
    memory = [
        device_copy((c.c_float * (len(grad) * width))(*[x for row in grad for x in row])),
        device_copy((c.c_int64 * len(indices))(*indices)),
        # Filled with NaN: every element has to be written.
        device_copy((c.c_float * (rows * width))(*[float("nan")] * (rows * width))),
    ]
    tensors = [
        tensor(memory[0], FLOAT, len(indices), width),
        tensor(memory[1], INT64, len(indices)),
        tensor(memory[2], FLOAT, rows, width),
    ]
    run(phase1, phase2, tensors[0], tensors[1], rows, padding, by_frequency, tensors[2])
    out = floats(memory[2], rows * width)
    release(tensors, memory)
    return [out[k * width:(k + 1) * width] for k in range(rows)]


def picture_loss_gradient(labels, weight, no_label):
    """The total weight of a row of pixels with `labels`, and the gradient of their mean loss, one row for each class."""
    pixels, classes = len(labels), len(weight)
    nan = float("nan")
    memory = [
        device_copy((c.c_float * (classes * pixels))(*[-1.0] * (classes * pixels))),
        device_copy((c.c_uint8 * pixels)(*labels)),
        device_copy((c.c_float * classes)(*weight)),
        device_copy((c.c_float * 1)(nan)),
        device_copy((c.c_float * 1)(nan)),
        device_copy((c.c_float * 1)(1.0)),
        device_copy((c.c_float * (classes * pixels))(*[nan] * (classes * pixels))),
    ]
    tensors = log_probability, target, class_weight, loss, total_weight, loss_gradient, out = [
        tensor(memory[0], FLOAT, 1, classes, 1, pixels),
        tensor(memory[1], UINT8, 1, 1, pixels),
        tensor(memory[2], FLOAT, classes),
        tensor(memory[3], FLOAT),
        tensor(memory[4], FLOAT),
        tensor(memory[5], FLOAT),
        tensor(memory[6], FLOAT, 1, classes, 1, pixels),
    ]
    run(nll_phase1, nll_phase2, log_probability, target, class_weight, MEAN, no_label, loss, total_weight)
    run(nll_backward_phase1, nll_backward_phase2, loss_gradient, log_probability, target, class_weight, MEAN, no_label,
        total_weight, out)
    gradient = floats(memory[6], classes * pixels)
    total = floats(memory[4], 1)[0]
    release(tensors, memory)
    return total, [gradient[k * pixels:(k + 1) * pixels] for k in range(classes)]


def fused_loss(sums, predicted, smoothing):
    """log(sums) - predicted. The type of `smoothing` says how it is passed: one client declares the float a double."""
    tokens = len(sums)
    fused_phase1.argtypes = [c.c_void_p] * 3 + [type(smoothing)] + [c.c_void_p] * 5 + nll_phase1.argtypes[-2:]
    memory = [device_copy((c.c_float * tokens)(*values)) for values in ([0] * tokens, sums, predicted, sums)]
    tensors = [tensor(address, FLOAT, tokens) for address in memory]
    try:
        run(fused_phase1, fused_phase2, *tensors[:3], smoothing, None, None, None, tensors[3], None)
        return floats(memory[3], tokens)
    finally:
        release(tensors, memory)


def expect(got, want):
    if got != want:
        raise AssertionError(f"got {got}, want {want}")


check(runtime.aclInit(None))
check(runtime.aclrtSetDevice(0))
GRAD, INDICES = [[1, 2], [10, 20], [100, 200]], [2, 0, 2]
expect(embedding_gradient(GRAD, INDICES, 3), [[10, 20], [0, 0], [101, 202]])
# Row 2 is padding; then row 2, named twice, is halved.
expect(embedding_gradient(GRAD, INDICES, 3, padding=2), [[10, 20], [0, 0], [0, 0]])
expect(embedding_gradient(GRAD, INDICES, 3, by_frequency=True), [[10, 20], [0, 0], [50.5, 101]])
try:
    embedding_gradient(GRAD, [2, 3, 2], 3)
except RuntimeError as error:
    # The position and the value of the bad index, and the range.
    if not all(part in str(error) for part in ("161002", "indices[1]", "= 3", "[0, 3)")):
        raise
else:
    raise AssertionError("index 3 of a table with 3 rows was taken")
# Weights 1, 2, 5 of labels 0, 2 and 1 are 8 together; the third pixel has no label.
expect(picture_loss_gradient([0, 2, 255, 1], [1, 2, 5], 255),
       (8, [[-1 / 8, 0, 0, 0], [0, 0, 0, -2 / 8], [0, -5 / 8, 0, 0]]))
for kind in c.c_float, c.c_double:
    expect(fused_loss([1, 1, 1], [0, -2, -.5], kind(0)), [0, 2, .5])
    try:
        fused_loss([1], [0], kind(.1))
    except RuntimeError as error:
        if "labelSmoothing" not in str(error):
            raise
    else:
        raise AssertionError("a label smoothing of .1 was taken")
check(runtime.aclrtResetDevice(0))
check(runtime.aclFinalize())
print("passed")
