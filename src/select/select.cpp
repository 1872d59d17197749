#include "select/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "cpu/isa.h"
#include "cpu/threads.h"
#include "onehot/onehot.h"

namespace onehot {
namespace select {

Status UnknownForced(std::string_view operator_name, std::string_view forced,
                     const std::vector<std::string_view>& known) {
  return Status::Error(Code::kBadArgument, fmt::format("ONEHOT_FORCE: must be one of {} for {}, is {}",
                                                       fmt::join(known, ", "), operator_name, forced));
}

Status ForcedRefuses(std::string_view operator_name, std::string_view forced, std::string_view refusal) {
  return Status::Error(Code::kUnsupported,
                       fmt::format("ONEHOT_FORCE: {} refuses this {}: {}", forced, operator_name, refusal));
}

void Log(std::string_view operator_name, std::string_view implementation, std::string_view verdict) {
  fmt::print(stderr, "onehot,plan,{},{},{}\n", operator_name, implementation, verdict);
}

}  // namespace select

std::vector<OperatorInfo> Operators() {
  return {{"embedding", select::ImplementationNames<Embedding>()},
          {"embedding_backward", select::ImplementationNames<EmbeddingBackward>()},
          {"nll_loss", select::ImplementationNames<NllLoss>()},
          {"nll_loss_backward", select::ImplementationNames<NllLossBackward>()},
          {"cross_entropy", select::ImplementationNames<CrossEntropy>()},
          {"cross_entropy_backward", select::ImplementationNames<CrossEntropyBackward>()},
          {"linear_cross_entropy", select::ImplementationNames<LinearCrossEntropy>()},
          {"linear_cross_entropy_backward", select::ImplementationNames<LinearCrossEntropyBackward>()},
          {"linear_cross_entropy_statistics", select::ImplementationNames<LinearCrossEntropyStatistics>()},
          {"linear_cross_entropy_loss", select::ImplementationNames<LinearCrossEntropyLoss>()}};
}

std::vector<std::string_view> InstructionSets() {
  const auto sets = cpu::InstructionSets();
  return {sets.begin(), sets.end()};
}

int DefaultThreads() {
  return cpu::DefaultThreads();
}

std::string_view Version() {
  return ONEHOT_VERSION;
}

}  // namespace onehot
