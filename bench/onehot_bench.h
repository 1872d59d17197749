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

// ---- arithmetic

// GFLOP/s of multiply-adds in registers: of f32, or of pairs of bf16 with sums in f32, then 0 where the CPU has none.
ONEHOT_BENCH_API double onehot_bench_arithmetic(int bf16, int threads);

// One multiply-add for each of `count` elements (a multiple of 256), all of it so many times, on the calling thread;
// nanoseconds.
ONEHOT_BENCH_API std::int64_t onehot_bench_multiply_add(const float* w, std::int64_t count, std::int64_t times);

// ---- plans

// A prepared plan with working memory that has been touched; null on failure, with the reason in onehot_bench_error.
// Tensors are dense; dtypes are the names that onehot::Name gives; indices are i64.
ONEHOT_BENCH_API void* onehot_bench_embedding_backward(const char* dtype, std::int64_t N, std::int64_t V,
                                                       std::int64_t D, const void* grad, const void* indices,
                                                       void* out);
ONEHOT_BENCH_API void* onehot_bench_embedding(const char* dtype, std::int64_t N, std::int64_t V, std::int64_t D,
                                              const void* weight, const void* indices, void* out);

// Losses over a class axis. An operator reads the fields that it has a use for; what is null is not given to it.
struct onehot_bench_loss {
  const char* dtype;  // of input and out
  const char* target_dtype;
  std::int64_t N, C, H, W;  // input and out [N, C, H, W]; [N, C] if H is 0
  int reduction;            // onehot::Reduction
  int channels_last;        // input and out lie as [N, H, W, C]
  const void* input;
  const void* target;
  const void* grad_output;  // of dtype
  const void* lse;          // f32, for the gradient
  void* loss;               // of dtype
  void* lse_out;            // f32
  void* total_weight;       // of dtype; the gradient of nll_loss reads it
  void* out;
};
ONEHOT_BENCH_API void* onehot_bench_nll_loss(const onehot_bench_loss* loss);
ONEHOT_BENCH_API void* onehot_bench_nll_loss_backward(const onehot_bench_loss* loss);
ONEHOT_BENCH_API void* onehot_bench_cross_entropy(const onehot_bench_loss* loss);
ONEHOT_BENCH_API void* onehot_bench_cross_entropy_backward(const onehot_bench_loss* loss);

// Linear cross entropy, mean over all positions. What is null is not given to the operator.
struct onehot_bench_linear_loss {
  const char* dtype;  // of input, weight and gradients
  std::int64_t N, H, V;
  std::int64_t max_workspace;  // bytes; negative: not given
  const void* input;           // [N, H]
  const void* weight;          // [V, H]
  const void* target;          // [N] i64
  const void* upstream;        // of the loss: one f32
  const void* lse;             // [N] f32, for the gradient
  const void* probability;     // [N, V] f32, for the gradient
  void* loss;                  // one f32
  void* lse_out;               // [N] f32
  void* grad_input;
  void* grad_weight;
};
ONEHOT_BENCH_API void* onehot_bench_linear_cross_entropy(const onehot_bench_linear_loss* loss);
ONEHOT_BENCH_API void* onehot_bench_linear_cross_entropy_backward(const onehot_bench_linear_loss* loss);

ONEHOT_BENCH_API void onehot_bench_free(void* plan);

ONEHOT_BENCH_API const char* onehot_bench_implementation(const void* plan);
ONEHOT_BENCH_API const char* onehot_bench_instruction_set(const void* plan);
ONEHOT_BENCH_API std::int64_t onehot_bench_scratch_bytes(const void* plan);

// Runs the plan so many times without a pause; nanoseconds, or -1 on failure.
ONEHOT_BENCH_API std::int64_t onehot_bench_run(const void* plan, int threads, std::int64_t times);

// The gradient of nll_loss as memset and scatter, which is what one writes first: out is zeroed, then each position
// stores the value at its class. The values have the dtype of out and are there already, one for each position, or one
// for all with `same_value`; targets are in range. Nanoseconds, or -1 on failure.
ONEHOT_BENCH_API std::int64_t onehot_bench_scatter(const onehot_bench_loss* loss, const void* values, int same_value,
                                                   int threads);

ONEHOT_BENCH_API const char* onehot_bench_error();

ONEHOT_BENCH_API const char* onehot_bench_version();

#endif  // ONEHOT_BENCH_ONEHOT_BENCH_H_
