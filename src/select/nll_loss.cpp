// The implementations of the NLL loss operators, best first.
#include "onehot/nll_loss.h"

#include "cpu/nll_loss.h"
#include "ref/nll_loss.h"
#include "ref/refuse_nothing.h"
#include "select/select.h"

namespace onehot {
namespace select {

template <>
std::span<const Implementation<NllLoss>> Implementations() {
  static constexpr Implementation<NllLoss> kList[] = {
      {"cpu:blocks", cpu::RefuseBlocks, cpu::PlanBlocks},
      {"ref", ref::RefuseNothing, ref::PlanNllLoss},
  };
  return kList;
}

template <>
std::span<const Implementation<NllLossBackward>> Implementations() {
  static constexpr Implementation<NllLossBackward> kList[] = {
      {"cpu:one_pass", cpu::RefuseOnePass, cpu::PlanOnePass},
      {"ref", ref::RefuseNothing, ref::PlanNllLossBackward},
  };
  return kList;
}

}  // namespace select

Result<Plan> Prepare(const NllLoss& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "nll_loss");
}

Result<Plan> Prepare(const NllLossBackward& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "nll_loss_backward");
}

}  // namespace onehot
