// The implementations of the embedding operators, best first.
#include "onehot/embedding.h"

#include "cpu/embedding.h"
#include "ref/embedding.h"
#include "ref/refuse_nothing.h"
#include "select/select.h"

namespace onehot {
namespace select {

template <>
std::span<const Implementation<EmbeddingBackward>> Implementations() {
  static constexpr Implementation<EmbeddingBackward> kList[] = {
      {"cpu:grouped", cpu::RefuseGrouped, cpu::PlanGrouped},
      {"ref", ref::RefuseNothing, ref::PlanEmbeddingBackward},
  };
  return kList;
}

template <>
std::span<const Implementation<Embedding>> Implementations() {
  static constexpr Implementation<Embedding> kList[] = {
      {"cpu:gather", cpu::RefuseGather, cpu::PlanGather},
      {"ref", ref::RefuseNothing, ref::PlanEmbedding},
  };
  return kList;
}

}  // namespace select

Result<Plan> Prepare(const EmbeddingBackward& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "embedding_backward");
}

Result<Plan> Prepare(const Embedding& problem) {
  if (Status bad = Check(problem); !bad.ok()) return bad;
  return select::Choose(problem, "embedding");
}

}  // namespace onehot
