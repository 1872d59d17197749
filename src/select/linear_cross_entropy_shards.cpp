// The implementations of linear cross entropy over a split vocabulary, best first.
#include "onehot/linear_cross_entropy_shards.h"

#include "cpu/linear_cross_entropy.h"
#include "ref/linear_cross_entropy.h"
#include "ref/refuse_nothing.h"
#include "select/select.h"

namespace onehot {
namespace select {

template <>
std::span<const Implementation<LinearCrossEntropyStatistics>> Implementations() {
  static constexpr Implementation<LinearCrossEntropyStatistics> kList[] = {
      {"cpu:bf16", cpu::RefuseBf16Statistics, cpu::PlanBf16Statistics},
      {"cpu:fused", cpu::RefuseFusedStatistics, cpu::PlanFusedStatistics},
      {"ref", ref::RefuseNothing, ref::PlanLinearCrossEntropyStatistics},
  };
  return kList;
}

template <>
std::span<const Implementation<LinearCrossEntropyLoss>> Implementations() {
  static constexpr Implementation<LinearCrossEntropyLoss> kList[] = {
      {"cpu:statistics", cpu::RefuseStatisticsLoss, cpu::PlanStatisticsLoss},
      {"ref", ref::RefuseNothing, ref::PlanLinearCrossEntropyLoss},
  };
  return kList;
}

}  // namespace select

Result<Plan> Prepare(const LinearCrossEntropyStatistics& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "linear_cross_entropy_statistics");
}

Result<Plan> Prepare(const LinearCrossEntropyLoss& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "linear_cross_entropy_loss");
}

}  // namespace onehot
