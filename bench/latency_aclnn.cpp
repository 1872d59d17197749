// The same small problem through the two phases of the C face; the tensors exist already, as in a client's loop.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"

namespace {

aclTensor* Dense(void* data, aclDataType dtype, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return aclCreateTensor(dims.data(), dims.size(), dtype, strides.data(), 0, ACL_FORMAT_ND, dims.data(), dims.size(),
                         data);
}

void BothPhases(benchmark::State& state) {
  std::array<float, 6> grad{1, 2, 3, 4, 5, 6};
  std::array<std::int64_t, 2> indices{2, 1};
  std::array<float, 12> out{};
  std::vector<std::byte> workspace;
  aclInit(nullptr);
  aclrtSetDevice(0);
  aclrtStream stream = nullptr;
  aclrtCreateStream(&stream);
  aclTensor* const grad_tensor = Dense(grad.data(), ACL_FLOAT, {2, 3});
  aclTensor* const index_tensor = Dense(indices.data(), ACL_INT64, {2});
  aclTensor* const out_tensor = Dense(out.data(), ACL_FLOAT, {4, 3});
  for (auto _ : state) {
    std::uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    if (aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad_tensor, index_tensor, 4, ~std::uint64_t{0}, false, out_tensor,
                                                    &bytes, &executor) != 0) {
      state.SkipWithError("phase 1 failed");
      break;
    }
    if (bytes > workspace.size()) workspace.resize(bytes);
    if (aclnnEmbeddingDenseBackward(workspace.data(), bytes, executor, stream) != 0) {
      state.SkipWithError("phase 2 failed");
      break;
    }
    benchmark::DoNotOptimize(out);
  }
  aclDestroyTensor(grad_tensor);
  aclDestroyTensor(index_tensor);
  aclDestroyTensor(out_tensor);
  aclrtDestroyStream(stream);
  aclrtResetDevice(0);
  aclFinalize();
}
BENCHMARK(BothPhases)->Name("aclnn: both phases, 2 x 3 gradient");

}  // namespace
