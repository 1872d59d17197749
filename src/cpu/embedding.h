// Embedding on the CPU: the implementations that select lists.
#ifndef ONEHOT_CPU_EMBEDDING_H_
#define ONEHOT_CPU_EMBEDDING_H_

#include <memory>
#include <string_view>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/embedding.h"

namespace onehot::cpu {

std::string_view RefuseGrouped(const EmbeddingBackward& op, Isa);
std::unique_ptr<PlanBody> PlanGrouped(const EmbeddingBackward& op, Isa isa);

std::string_view RefuseGather(const Embedding& op, Isa);
std::unique_ptr<PlanBody> PlanGather(const Embedding& op, Isa isa);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_EMBEDDING_H_
