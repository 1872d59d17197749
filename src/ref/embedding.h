// The definitions of onehot/embedding.h, read off the header: last resort and oracle.
#ifndef ONEHOT_REF_EMBEDDING_H_
#define ONEHOT_REF_EMBEDDING_H_

#include <memory>

#include "core/isa.h"
#include "core/plan_body.h"
#include "onehot/embedding.h"

namespace onehot::ref {

std::unique_ptr<PlanBody> PlanEmbeddingBackward(const EmbeddingBackward& op, Isa);
std::unique_ptr<PlanBody> PlanEmbedding(const Embedding& op, Isa);

}  // namespace onehot::ref

#endif  // ONEHOT_REF_EMBEDDING_H_
