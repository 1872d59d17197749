// Elements of any dtype as f64, one at a time: what the definitions of losses are written with.
#ifndef ONEHOT_REF_ELEMENTS_H_
#define ONEHOT_REF_ELEMENTS_H_

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/layout.h"
#include "core/plan_body.h"
#include "onehot/plan.h"
#include "ops/indices.h"
#include "ops/losses.h"

namespace onehot::ref {

// Exact.
inline double Load(const ConstTensorView& tensor, std::int64_t offset) {
  return ForDType(LossTypes{}, tensor.dtype,
                  [&]<class T>() { return static_cast<double>(Widen(static_cast<const T*>(tensor.data)[offset])); });
}

// Rounds once. Real is float or double.
template <class Real>
void Store(const TensorView& tensor, std::int64_t offset, Real value) {
  ForDType(LossTypes{}, tensor.dtype, [&]<class T>() { static_cast<T*>(tensor.data)[offset] = Narrow<T>(value); });
}

// An optional factor that has one value for each class, or one for each position.
class Factor {
 public:
  Factor(const std::optional<ConstTensorView>& tensor) : tensor_(tensor) {  // NOLINT: implicit on purpose
    if (tensor_) at_ = Flatten(*tensor_, tensor_->rank);
  }
  bool given() const { return tensor_.has_value(); }
  double operator[](std::int64_t i) const { return tensor_ ? Load(*tensor_, at_.Offset(i)) : 1.0; }

 private:
  std::optional<ConstTensorView> tensor_;
  Positions at_;
};

// Calls visit(position, class) for every position in order, class -1 where it is ignored. Stops at the first target that
// names no class, with its error, and where the caller wants to stop.
template <class F>
Status ForEachTarget(const ConstTensorView& target, std::int64_t C, std::int64_t ignore_index,
                     const RunOptions& options, F&& visit) {
  constexpr std::int64_t kReport = 1024;  // positions between two looks at the callback, which then costs nothing
  const Positions at = Flatten(target, target.rank);
  return ForDType(TargetTypes{}, target.dtype, [&]<class I>() -> Status {
    for (std::int64_t i = 0; i < at.count; ++i) {
      const auto y = static_cast<std::int64_t>(static_cast<const I*>(target.data)[at.Offset(i)]);
      if (y != ignore_index && (y < 0 || y >= C)) return BadIndex("target", target, i, C);
      if (options.progress && i % kReport == kReport - 1 && !options.progress(i, at.count)) return Cancelled();
      visit(i, y == ignore_index ? std::int64_t{-1} : y);
    }
    return Status::Ok();
  });
}

// The sum over positions that onehot/nll_loss.h writes down: blocks of 4096, 16 lanes in each.
class OrderedSum {
 public:
  void Add(std::int64_t position, double term) {
    if (position / kBlock != block_) Flush(position / kBlock);
    lanes_[position % kLanes] += term;
  }
  double Total() {
    Flush(block_);
    return total_;
  }

 private:
  static constexpr std::int64_t kBlock = 4096, kLanes = 16;

  void Flush(std::int64_t next) {
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
      for (std::int64_t j = 0; j < width; ++j) lanes_[j] += lanes_[j + width];
    total_ += lanes_[0];
    for (double& lane : lanes_) lane = 0;
    block_ = next;
  }

  double lanes_[kLanes] = {};
  double total_ = 0;
  std::int64_t block_ = 0;
};

}  // namespace onehot::ref

#endif  // ONEHOT_REF_ELEMENTS_H_
