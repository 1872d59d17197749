// The implementations of the linear cross entropy operators, best first.
#include "onehot/linear_cross_entropy.h"

#include "cpu/linear_cross_entropy.h"
#include "ref/linear_cross_entropy.h"
#include "ref/refuse_nothing.h"
#include "select/select.h"

namespace onehot {
namespace select {

template <>
std::span<const Implementation<LinearCrossEntropy>> Implementations() {
  static constexpr Implementation<LinearCrossEntropy> kList[] = {
      {"cpu:bf16", cpu::RefuseBf16, cpu::PlanBf16},
      {"cpu:fused", cpu::RefuseFused, cpu::PlanFused},
      {"ref", ref::RefuseNothing, ref::PlanLinearCrossEntropy},
  };
  return kList;
}

template <>
std::span<const Implementation<LinearCrossEntropyBackward>> Implementations() {
  static constexpr Implementation<LinearCrossEntropyBackward> kList[] = {
      {"cpu:bf16", cpu::RefuseBf16Backward, cpu::PlanBf16Backward},
      {"cpu:fused", cpu::RefuseFusedBackward, cpu::PlanFusedBackward},
      {"ref", ref::RefuseNothing, ref::PlanLinearCrossEntropyBackward},
  };
  return kList;
}

}  // namespace select

Result<Plan> Prepare(const LinearCrossEntropy& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "linear_cross_entropy");
}

Result<Plan> Prepare(const LinearCrossEntropyBackward& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "linear_cross_entropy_backward");
}

}  // namespace onehot
