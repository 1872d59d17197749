// The native API of onehot: gradients at the class-index end of a model.
#ifndef ONEHOT_ONEHOT_H_
#define ONEHOT_ONEHOT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onehot/cross_entropy.h"
#include "onehot/embedding.h"
#include "onehot/export.h"
#include "onehot/linear_cross_entropy.h"
#include "onehot/linear_cross_entropy_shards.h"
#include "onehot/nll_loss.h"
#include "onehot/plan.h"
#include "onehot/reduction.h"
#include "onehot/status.h"
#include "onehot/tensor.h"
#include "onehot/version.h"

namespace onehot {

// What this build on this machine can choose from; `onehot info` prints it.
struct OperatorInfo {
  std::string_view name;                          // "embedding_backward"
  std::vector<std::string_view> implementations;  // best first, "ref" last
};
ONEHOT_API std::vector<OperatorInfo> Operators();

// Instruction sets that were compiled in and that this CPU has, best first: the values of ONEHOT_MAX_ISA.
ONEHOT_API std::vector<std::string_view> InstructionSets();

// Threads a run with RunOptions::threads == 0 may use.
ONEHOT_API int DefaultThreads();

// Version of the library that is running; ONEHOT_VERSION is that of the headers.
ONEHOT_API std::string_view Version();

}  // namespace onehot

#endif  // ONEHOT_ONEHOT_H_
