// What phase 2 of an operator runs: a native plan, or one with steps of the C face before it.
#ifndef ONEHOT_ACLNN_LAUNCH_PLAN_H_
#define ONEHOT_ACLNN_LAUNCH_PLAN_H_

#include <cstddef>
#include <functional>
#include <utility>
#include <variant>

#include "onehot/plan.h"
#include "onehot/status.h"

namespace onehot::aclnn {

// The size that phase 1 said is a promise. Where it is not enough, since a plan made later needs more, the plan brings its
// own memory.
inline Status RunIn(const Plan& plan, void* workspace, std::size_t bytes) {
  return plan.scratch_bytes() <= bytes ? plan.Run(workspace, bytes) : plan.Run();
}

class LaunchPlan {
 public:
  using Steps = std::function<Status(void* workspace, std::size_t bytes)>;

  LaunchPlan(Plan plan) : bytes_(plan.scratch_bytes()), work_(std::move(plan)) {}  // NOLINT: most are no more than that
  // Once a plan reads what a step leaves in the workspace, it can be made only where the workspace is known.
  LaunchPlan(std::size_t bytes, Steps steps) : bytes_(bytes), work_(std::move(steps)) {}

  std::size_t workspace_bytes() const { return bytes_; }
  // `bytes` are those that phase 1 said.
  Status Run(void* workspace, std::size_t bytes) const {
    if (const Steps* steps = std::get_if<Steps>(&work_)) return (*steps)(workspace, bytes);
    return RunIn(std::get<Plan>(work_), workspace, bytes);
  }

 private:
  std::size_t bytes_;
  std::variant<Plan, Steps> work_;
};

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_LAUNCH_PLAN_H_
