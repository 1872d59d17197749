// NLL loss on the CPU: the implementations that select lists.
#ifndef ONEHOT_CPU_NLL_LOSS_H_
#define ONEHOT_CPU_NLL_LOSS_H_

#include <memory>
#include <string_view>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/nll_loss.h"

namespace onehot::cpu {

std::string_view RefuseBlocks(const NllLoss& op, Isa);
std::unique_ptr<PlanBody> PlanBlocks(const NllLoss& op, Isa isa);

std::string_view RefuseOnePass(const NllLossBackward& op, Isa);
std::unique_ptr<PlanBody> PlanOnePass(const NllLossBackward& op, Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_NLL_LOSS_H_
