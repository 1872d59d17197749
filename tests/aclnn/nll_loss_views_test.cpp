// The NLL losses of the C face read and write tensors as they lie in memory.
#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tests/aclnn/nll_loss_call.h"
#include "tests/native/strides.h"

namespace onehot::test::nll {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Memory for `spec` laid out by `strides` from `offset`, with -7 wherever no element lies.
class Spread {
 public:
  Spread(TensorSpec& spec, const std::vector<std::int64_t>& strides, std::int64_t offset)
      : dims_(spec.dims), strides_(strides), offset_(offset), dense_(static_cast<float*>(spec.data)) {
    ForEachElement([&](std::size_t at, std::size_t) { memory_.resize(std::max(memory_.size(), at + 3), -7.0f); });
    ForEachElement([&](std::size_t at, std::size_t k) { memory_[at] = dense_[k]; });
    spec.data = memory_.data();
    spec.strides = strides;
    spec.offset = offset;
  }
  // Takes the elements back to where they came from, and looks at the gaps.
  void Gather() {
    ForEachElement([&](std::size_t at, std::size_t k) {
      dense_[k] = memory_[at];
      memory_[at] = -7;
    });
    EXPECT_THAT(memory_, Each(-7.0f));
  }

 private:
  template <class Visit>
  void ForEachElement(Visit&& visit) {
    std::size_t count = 1;
    for (const std::int64_t extent : dims_) count *= static_cast<std::size_t>(extent);
    for (std::size_t k = 0; k < count; ++k) {
      std::int64_t at = offset_, rest = static_cast<std::int64_t>(k);
      for (std::size_t axis = dims_.size(); axis-- > 0; rest /= dims_[axis]) at += rest % dims_[axis] * strides_[axis];
      visit(static_cast<std::size_t>(at), k);
    }
  }

  const std::vector<std::int64_t> dims_, strides_;
  const std::int64_t offset_;
  float* const dense_;
  std::vector<float> memory_;
};

TEST(NllLosses, EveryOrderOfTheAxesInMemory) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    const std::size_t axes = op.pictures ? 4 : 2;
    std::vector<std::size_t> order(axes);
    for (std::size_t axis = 0; axis < axes; ++axis) order[axis] = axis;
    do {  // { 0, 2, 3, 1 } is channels_last
      GoodNll good(op, reduction);
      for (const std::int64_t gap : {0, 3}) {
        good.Clear();
        std::vector<Spread> spread;
        spread.reserve(3);
        for (const std::string_view tensor : {std::string_view("self"), std::string_view("out")}) {
          TensorSpec& spec = good.call[tensor];
          if (spec.dims.size() != axes) continue;
          spec.data = tensor == "out" ? good.out.data() : good.self.data();
          spread.emplace_back(spec, PermutedStrides(spec.dims, order, gap), gap);
        }
        good.call.ExpectDone();
        if (op.backward) spread[1].Gather();
        good.ExpectRight();
      }
    } while (std::ranges::next_permutation(order).found);
  });
}

TEST(NllLosses, PositionsWithGapsAndOffsets) {
  ForEachNll([](const NllOperator& op, std::int64_t reduction) {
    GoodNll good(op, reduction);
    // Every second position, the last axis of pictures outermost.
    const std::vector<std::int64_t> strides =
        op.pictures ? std::vector<std::int64_t>{2, 100, 4} : std::vector<std::int64_t>{2};
    const std::vector<std::size_t> places =
        op.pictures ? std::vector<std::size_t>{0, 4, 2, 6} : std::vector<std::size_t>{0, 2, 4, 6};
    std::vector<std::int64_t> target(8, 77);
    for (std::size_t i = 0; i < 4; ++i) target[places[i] + 1] = good.target[i];
    good.call["target"].data = target.data();
    good.call["target"].strides = strides;
    good.call["target"].offset = 1;
    std::vector<float> weight{-7, -7, 5, -7, 2, -7, 1};
    std::reverse(weight.begin() + 2, weight.end());
    good.call["weight"].data = weight.data();
    good.call["weight"].strides = {2};
    good.call["weight"].offset = 2;
    std::vector<Spread> spread;
    if (reduction == kNone) spread.emplace_back(good.call[op.per_loss()], strides, 1);
    good.call.ExpectDone();
    if (reduction == kNone && !op.backward) spread[0].Gather();
    good.ExpectRight();
  });
}

TEST(NllLosses, ExpandedInputs) {
  for (const NllOperator* op : kNllOperators) {
    GoodNll good(*op, kNone);
    for (const std::string_view tensor :
         {std::string_view("self"), std::string_view("weight"), std::string_view("gradOutput")}) {
      if (tensor == "gradOutput" && !op->backward) continue;
      TensorSpec& spec = good.call[tensor];
      spec.strides = std::vector<std::int64_t>(spec.dims.size(), 0);
    }
    good.self[0] = -3;
    good.grad_output[0] = 7;
    good.weight[0] = 2;
    good.call.ExpectDone();
    if (op->backward) {
      EXPECT_EQ(good.out, good.Laid({{0, 0, -14}, {-14, 0, 0}, {0, 0, 0}, {0, -14, 0}}));
    } else {
      EXPECT_THAT(good.out, ElementsAre(6, 6, 0, 6));
    }
  }
}

}  // namespace
}  // namespace onehot::test::nll
