// Executors: what phase 1 of an operator makes and phase 2 runs.
#ifndef ONEHOT_ACLNN_EXECUTOR_H_
#define ONEHOT_ACLNN_EXECUTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "aclnn/acl_meta.h"
#include "aclnn/handle_table.h"
#include "aclnn/launch_plan.h"
#include "aclnn/product.h"
#include "onehot/status.h"
#include "onehot/tensor.h"

namespace onehot::aclnn {

// What the C face knows about an operator apart from its arguments.
struct Operator {
  const char* name;        // "aclnnEmbedding"
  std::uint32_t products;  // bit p is set if Product p offers it
};

constexpr std::uint32_t On(Product product) {
  return 1u << static_cast<unsigned>(product);
}
inline constexpr std::uint32_t kAllProducts =
    On(Product::kAscend910A) | On(Product::kAscend910B) | On(Product::kAscend910_93) | On(Product::kAscend950);

enum class Role : std::uint8_t { kInput, kOutput };

// A tensor parameter of one call: what phase 1 saw, and the memory it lies in now.
struct Argument {
  const char* name = nullptr;  // as in the prototype
  Role role = Role::kInput;
  bool given = false;     // false for an absent optional tensor and for one that the call does not read
  bool not_read = false;  // there, but not read: it takes an address and does nothing with it
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  std::size_t rank = 0;     // may be above kMaxRank, then `layout` lacks axes
  TensorLayout layout;      // its dtype only where there is a native one
  std::int64_t offset = 0;  // elements
  void* base = nullptr;     // `offset` elements before element (0, ..., 0)

  // For the native problem. Null memory stays null.
  TensorView view() const;
};

// Runs of one executor follow each other; different executors do not know of each other.
class Executor {
 public:
  Executor(const Operator& op, Product product) : op_(op), product_(product) {}
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  const Operator& op() const { return op_; }
  virtual std::span<Argument> arguments() = 0;

  // Checks all arguments, the memory they lie in too, and makes the plan. Phase 1, and again after a new address.
  Status Bind();

  // What phase 1 tells the client; later plans may need something else.
  std::size_t workspace_bytes() const { return workspace_bytes_; }

 protected:
  virtual Result<LaunchPlan> MakePlan(Product product) = 0;

 private:
  friend struct ExecutorAccess;  // the functions that clients call, in executor.cpp

  const Operator& op_;
  const Product product_;

  std::mutex mutex_;  // guards all below, and the addresses of the arguments, once the handle is out
  std::optional<LaunchPlan> plan_;
  std::size_t workspace_bytes_ = 0;
  bool bound_ = false;  // false: an address changed since the plan was made
  bool repeatable_ = false;
  bool spent_ = false;
};

// An executor with its arguments and its way to a plan, `make_plan(span of arguments, product)`, in one allocation. The
// plan may keep the span.
template <class MakePlanFunction, std::size_t kArguments>
class ExecutorOf final : public Executor {
 public:
  ExecutorOf(const Operator& op, Product product, const MakePlanFunction& make_plan)
      : Executor(op, product), make_plan_(make_plan) {}
  std::span<Argument> arguments() override { return arguments_; }

 private:
  Result<LaunchPlan> MakePlan(Product product) override {
    auto plan = make_plan_(std::span<const Argument, kArguments>(arguments_), product);  // of a Plan or a LaunchPlan
    if (!plan.ok()) return plan.status();
    return LaunchPlan(std::move(plan).value());
  }

  std::array<Argument, kArguments> arguments_;
  MakePlanFunction make_plan_;
};

using ExecutorTable = HandleTable<std::shared_ptr<Executor>, HandleKind::kExecutor>;

// Phase 2 of every operator.
aclnnStatus Launch(const Operator& op, void* workspace, std::uint64_t workspace_size, aclOpExecutor* executor,
                   aclrtStream stream) noexcept;

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_EXECUTOR_H_
