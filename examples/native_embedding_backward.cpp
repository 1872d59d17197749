// The gradient of an embedding table with the native API, on a case small enough to check by hand:
//
//   grad = 1 2      indices = 2    row 2 of the table was used at positions 0 and 2,   dW =   10  20
//          10 20              0    row 0 at position 1, row 1 nowhere                          0   0
//          100 200            2                                                              101 202
#include <array>
#include <cstdint>
#include <cstdio>

#include "onehot/onehot.h"

namespace {

int Complain(const onehot::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main() {
  constexpr int kN = 3, kV = 3, kD = 2;
  const std::array<float, kN* kD> grad = {1, 2, 10, 20, 100, 200};
  std::array<std::int64_t, kN> indices = {2, 0, 2};
  std::array<float, kV * kD> dw{};

  onehot::EmbeddingBackward problem;
  problem.grad = {grad.data(), onehot::DType::kF32, {kN, kD}};
  problem.indices = {indices.data(), onehot::DType::kI64, {kN}};
  problem.out = {dw.data(), onehot::DType::kF32, {kV, kD}};

  // Prepare checks shapes, types and strides and picks the implementation. The plan can run any number of times.
  onehot::Result<onehot::Plan> plan = onehot::Prepare(problem);
  if (!plan.ok()) return Complain(plan.status());
  if (const onehot::Status status = plan->Run(); !status.ok()) return Complain(status);
  for (int v = 0; v < kV; ++v) std::printf("dW[%d] = %g %g\n", v, dw[v * kD], dw[v * kD + 1]);

  // Index values are checked by Run, before it writes anything.
  indices[1] = 3;
  const onehot::Status refused = plan->Run();
  std::printf("refused: %s\n", refused.message().c_str());
  return refused.code() == onehot::Code::kBadData ? 0 : 1;
}
