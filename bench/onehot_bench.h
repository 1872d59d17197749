// The C functions of libonehot_bench, which bench/common.py calls through ctypes.
#ifndef ONEHOT_BENCH_ONEHOT_BENCH_H_
#define ONEHOT_BENCH_ONEHOT_BENCH_H_

#include <cstddef>
#include <cstdint>

#define ONEHOT_BENCH_API extern "C" __attribute__((visibility("default")))

// ---- memory

// Pages of zeros that nobody has touched yet; null if there are none. `bytes` as in the call to unmap.
ONEHOT_BENCH_API void* onehot_bench_map(std::size_t bytes);
ONEHOT_BENCH_API void onehot_bench_unmap(void* pages, std::size_t bytes);

// Copies `pattern` into `to` over and over.
ONEHOT_BENCH_API void onehot_bench_tile(void* to, std::size_t bytes, const void* pattern, std::size_t pattern_bytes);

// Fills memory with bits that no operator would leave there (NaN in every floating dtype). With `stream` past the
// caches, so that nothing of it is in them; else with ordinary stores.
ONEHOT_BENCH_API void onehot_bench_dirty(void* to, std::size_t bytes, int stream, int threads);

// One pass over `bytes` (a multiple of 4096, both pointers so aligned), divided among `threads`; nanoseconds.
// What to do: 0 read `to`, 1 ordinary stores, 2 non-temporal stores of data, 3 non-temporal stores of zeros, 4 memcpy
// from `from`.
ONEHOT_BENCH_API std::int64_t onehot_bench_sweep(int what, void* to, const void* from, std::size_t bytes, int threads);

// ---- plans

// A prepared plan with working memory that has been touched; null on failure, with the reason in onehot_bench_error.
// Tensors are dense; dtypes are the names that onehot::Name gives; indices are i64.
ONEHOT_BENCH_API void* onehot_bench_embedding_backward(const char* dtype, std::int64_t N, std::int64_t V,
                                                       std::int64_t D, const void* grad, const void* indices,
                                                       void* out);
ONEHOT_BENCH_API void* onehot_bench_embedding(const char* dtype, std::int64_t N, std::int64_t V, std::int64_t D,
                                              const void* weight, const void* indices, void* out);
ONEHOT_BENCH_API void onehot_bench_free(void* plan);

ONEHOT_BENCH_API const char* onehot_bench_implementation(const void* plan);
ONEHOT_BENCH_API const char* onehot_bench_instruction_set(const void* plan);
ONEHOT_BENCH_API std::int64_t onehot_bench_scratch_bytes(const void* plan);

// Runs the plan once; nanoseconds, or -1 on failure.
ONEHOT_BENCH_API std::int64_t onehot_bench_run(const void* plan, int threads);

ONEHOT_BENCH_API const char* onehot_bench_error();

ONEHOT_BENCH_API const char* onehot_bench_version();

#endif  // ONEHOT_BENCH_ONEHOT_BENCH_H_
