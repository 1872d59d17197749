// The implementations of the cross entropy operators, best first.
#include "onehot/cross_entropy.h"

#include "cpu/cross_entropy.h"
#include "ref/cross_entropy.h"
#include "ref/refuse_nothing.h"
#include "select/select.h"

namespace onehot {
namespace select {

template <>
std::span<const Implementation<CrossEntropy>> Implementations() {
  static constexpr Implementation<CrossEntropy> kList[] = {
      {"cpu:batches", cpu::RefuseBatches, cpu::PlanBatches},
      {"ref", ref::RefuseNothing, ref::PlanCrossEntropy},
  };
  return kList;
}

template <>
std::span<const Implementation<CrossEntropyBackward>> Implementations() {
  static constexpr Implementation<CrossEntropyBackward> kList[] = {
      {"cpu:batches", cpu::RefuseBatchesBackward, cpu::PlanBatchesBackward},
      {"ref", ref::RefuseNothing, ref::PlanCrossEntropyBackward},
  };
  return kList;
}

}  // namespace select

Result<Plan> Prepare(const CrossEntropy& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "cross_entropy");
}

Result<Plan> Prepare(const CrossEntropyBackward& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "cross_entropy_backward");
}

}  // namespace onehot
