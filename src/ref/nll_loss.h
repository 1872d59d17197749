// The definitions of onehot/nll_loss.h, read off the header: last resort and oracle.
#ifndef ONEHOT_REF_NLL_LOSS_H_
#define ONEHOT_REF_NLL_LOSS_H_

#include <memory>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/nll_loss.h"

namespace onehot::ref {

std::unique_ptr<PlanBody> PlanNllLoss(const NllLoss& op, Isa);
std::unique_ptr<PlanBody> PlanNllLossBackward(const NllLossBackward& op, Isa);

}  // namespace onehot::ref

#endif  // ONEHOT_REF_NLL_LOSS_H_
