// What an implementation makes of a problem: the part behind onehot::Plan.
#ifndef ONEHOT_CORE_PLAN_BODY_H_
#define ONEHOT_CORE_PLAN_BODY_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/scratch.h"
#include "onehot/plan.h"
#include "onehot/status.h"

namespace onehot {

// What Run returns where the caller's progress function stopped it.
inline Status Cancelled() {
  return Status::Error(Code::kCancelled, "cancelled: outputs are undefined");
}

class PlanBody {
 public:
  virtual ~PlanBody() = default;
  virtual std::string_view instruction_set() const { return ""; }
  // May assume that the problem passed Check and that scratch is large enough and aligned to ScratchLayout::kAlign.
  virtual Status Run(Scratch scratch, const RunOptions& options) const = 0;

  std::size_t scratch_bytes() const { return layout_.bytes(); }
  std::span<const Considered> considered() const { return {considered_.data(), considered_count_}; }
  double flops() const { return flops_; }
  std::string_view order() const { return order_; }
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t bytes_written() const { return bytes_written_; }

  // For select, which walks the list; a refusal beyond the capacity is dropped (lists are shorter).
  void NoteConsidered(std::string_view implementation, std::string_view refusal) {
    if (considered_count_ < considered_.size()) considered_[considered_count_++] = {implementation, refusal};
  }
  // Names a tensor that has elements but no memory yet: legal in a plan, refused by its Run.
  void NoteMissing(std::string_view argument) {
    if (missing_.empty()) missing_ = argument;
  }
  std::string_view missing() const { return missing_; }
  void SetTraffic(std::int64_t read, std::int64_t written) { bytes_read_ = read, bytes_written_ = written; }

 protected:
  void SetProducts(double flops, std::string order) { flops_ = flops, order_ = std::move(order); }

  ScratchLayout layout_;

 private:
  std::array<Considered, 8> considered_{};
  std::size_t considered_count_ = 0;
  std::string_view missing_;
  std::int64_t bytes_read_ = 0, bytes_written_ = 0;
  double flops_ = 0;
  std::string order_;
};

}  // namespace onehot

#endif  // ONEHOT_CORE_PLAN_BODY_H_
