"""The C face from Python, through ctypes and the names and numbers of the interface alone.

ctypes_client.py [DIRECTORY]: the libraries are taken from DIRECTORY, else by their bare names.
"""
import ctypes as c
import os
import sys

FLOAT, INT64, ND = 0, 9, 2
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
    stream, executor, workspace, size = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_uint64()
    check(runtime.aclrtCreateStream(c.byref(stream)))
    check(phase1(tensors[0], tensors[1], rows, padding, by_frequency, tensors[2], c.byref(size), c.byref(executor)))
    if size.value:
        check(runtime.aclrtMalloc(c.byref(workspace), size, HUGE_FIRST))
        memory.append(workspace)
    check(phase2(workspace, size, executor, stream))
    check(runtime.aclrtSynchronizeStream(stream))
    out = (c.c_float * (rows * width))()
    check(runtime.aclrtMemcpy(out, c.sizeof(out), memory[2], c.sizeof(out), DEVICE_TO_HOST))
    for handle in tensors:
        meta.aclDestroyTensor(handle)
    for address in memory:
        check(runtime.aclrtFree(address))
    check(runtime.aclrtDestroyStream(stream))
    return [list(out[k * width:(k + 1) * width]) for k in range(rows)]


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
check(runtime.aclrtResetDevice(0))
check(runtime.aclFinalize())
print("passed")
