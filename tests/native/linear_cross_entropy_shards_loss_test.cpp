// The loss from statistics, whoever made them: numbers worked by hand, every combination of options and outputs, what may
// be left out, dtypes and layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/data.h"
#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr const char* kOutputs[] = {"loss", "lse", "log_probability", "entropy", "total_weight", "probability"};

// Statistics such as softmax gives: max of either sign, sum_exp in [1, classes], the others of the right sign.
struct Statistics {
  explicit Statistics(DType dtype_, const Dims& positions_, std::int64_t classes_ = 30, std::uint64_t seed = 1)
      : dtype(dtype_),
        positions(positions_),
        classes(classes_),
        max(dtype, positions),
        sum_exp(max),
        target_logit(max),
        smoothing(max),
        moment(max),
        target(DType::kI64, positions),
        class_weight(dtype, {classes}),
        token_weight(dtype, positions),
        denominator(DType::kF64, {}),
        loss(dtype, positions),
        total_weight(dtype, {}),
        lse(max),
        log_probability(max),
        entropy(max),
        logits(dtype, WithClasses(9)),
        probability(dtype, WithClasses(9)) {
    Random random(seed);
    for (std::int64_t i = 0; i < max.numel(); ++i) {
      max.SetValue(i, 30 * random.Unit() - 10);
      sum_exp.SetValue(i, 1 + random.Unit() * static_cast<double>(classes - 1));
      target_logit.SetValue(i, -8 * random.Unit());
      smoothing.SetValue(i, 300 * random.Unit());
      moment.SetValue(i, -5 * random.Unit());
      token_weight.SetValue(i, 0.5 + 2 * random.Unit());
      for (std::int64_t v = 0; v < 9; ++v) logits.SetValue(9 * i + v, max.Value(i) - 12 * random.Unit());
    }
    for (std::int64_t v = 0; v < classes; ++v) class_weight.SetValue(v, 0.25 + random.Unit());
    denominator.SetValue(0, 5.75);
    FillTargets(target, classes, {.ignored = 0.2}, seed + 1);
  }
  Dims WithClasses(std::int64_t count) const {
    Dims dims = positions;
    dims.push_back(count);
    return dims;
  }

  // Everything that may be given, and every output.
  LinearCrossEntropyLoss op(Reduction reduction) {
    if (reduction != Reduction::kNone) loss = Tensor(loss.layout().dtype, {});
    LinearCrossEntropyLoss all{.max = std::as_const(max).view(),
                               .sum_exp = std::as_const(sum_exp).view(),
                               .target_logit = std::as_const(target_logit).view(),
                               .smoothing = std::as_const(smoothing).view(),
                               .moment = std::as_const(moment).view(),
                               .target = std::as_const(target).view(),
                               .num_classes = classes,
                               .logits = std::as_const(logits).view(),
                               .loss = loss.view(),
                               .lse = lse.view(),
                               .log_probability = log_probability.view(),
                               .entropy = entropy.view(),
                               .total_weight = total_weight.view(),
                               .probability = probability.view()};
    all.options.reduction = reduction;
    return all;
  }
  std::vector<Tensor*> outputs() { return {&loss, &lse, &log_probability, &entropy, &total_weight, &probability}; }

  DType dtype;
  Dims positions;
  std::int64_t classes;
  Tensor max, sum_exp, target_logit, smoothing, moment, target, class_weight, token_weight, denominator;
  Tensor loss, total_weight, lse, log_probability, entropy, logits, probability;
};

double Unit(DType dtype) {
  return dtype == DType::kF64 ? 0x1p-53 : 0x1p-24;
}

// Every output within its bound of the definition on every target, with the same bits for any number of threads.
void ExpectRight(Statistics& given, const LinearCrossEntropyLoss& op, BitsByGroup* bits = nullptr) {
  BitsByGroup own;
  if (bits == nullptr) bits = &own;
  const ShardLossDefinition want = Define(op);
  const double u = Unit(given.dtype);
  OnTargets(op, given.outputs(), {1, 2, 3}, [&](const Target& target) {
    if (op.loss) {
      EXPECT_TRUE(Within(given.loss, want.loss, u)) << "loss";
    }
    if (op.lse) {
      EXPECT_TRUE(Within(given.lse, want.lse, u)) << "lse";
    }
    if (op.log_probability) {
      EXPECT_TRUE(Within(given.log_probability, want.log_probability, u)) << "log_probability";
    }
    if (op.entropy) {
      EXPECT_TRUE(Within(given.entropy, want.entropy, u)) << "entropy";
    }
    if (op.total_weight) {
      EXPECT_TRUE(Within(given.total_weight, want.total_weight, u)) << "total_weight";
    }
    if (op.probability) {
      EXPECT_TRUE(Within(given.probability, want.probability, u)) << "probability";
    }
    bits->ExpectSame(target, given.outputs(), kOutputs);
  });
}

// sum_exp e^2: lse = max + 2, lse - z_y = 2 - (-1), entropy 2 - (-e^2 / 2) / e^2; smoothing .2 over 4 classes of weight 1:
// .8 x 3 + .05 (6 + 4 x 2).
TEST(LinearCrossEntropyLoss, ByHand) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Statistics given(dtype, {1}, 4);
    const double e2 = std::exp(2.), tolerance = dtype == DType::kF32 ? 4e-6 : 1e-13;
    given.max.SetValue(0, 10), given.sum_exp.SetValue(0, e2), given.target_logit.SetValue(0, -1);
    given.smoothing.SetValue(0, 6), given.moment.SetValue(0, -e2 / 2), given.target.Set<std::int64_t>(0, 3);
    given.logits.SetValue(0, 9);
    LinearCrossEntropyLoss op = given.op(Reduction::kSum);
    op.options.label_smoothing = .2, op.options.z_loss = .01;
    OnTargets(op, given.outputs(), {1}, [&](const Target&) {
      EXPECT_NEAR(given.lse.Value(0), 12, tolerance);
      EXPECT_NEAR(given.log_probability.Value(0), -3, tolerance);
      EXPECT_NEAR(given.entropy.Value(0), 2.5, tolerance);
      EXPECT_NEAR(given.loss.Value(0), .8 * 3 + .05 * 14 + .01 * 144, tolerance);
      EXPECT_EQ(given.total_weight.Value(0), 1);
      EXPECT_NEAR(given.probability.Value(0), std::exp(-3.), tolerance);
    });
  }
}

TEST(LinearCrossEntropyLoss, EveryCombinationOfOptions) {
  std::uint64_t seed = 1;
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Reduction reduction : kReductions)
      for (unsigned options = 0; options < 64; ++options) {
        const auto has = [&](unsigned option) { return (options >> option & 1u) != 0; };
        SCOPED_TRACE(std::string(Name(dtype)) + " " + std::string(Name(reduction)) + " " + std::to_string(options));
        Statistics given(dtype, {3, 7}, 30, seed++);
        LinearCrossEntropyLoss op = given.op(reduction);
        if (has(0)) op.options.weight = std::as_const(given.class_weight).view();
        if (has(1)) op.options.token_weight = std::as_const(given.token_weight).view();
        if (has(2)) op.options.denominator = std::as_const(given.denominator).view();
        if (has(3)) op.options.label_smoothing = 0.15;
        if (has(4)) op.options.z_loss = 2e-3;
        if (has(5)) op.options.ignore_index = 0;
        for (std::int64_t i = 0; i < 21 && has(5); ++i)
          if (given.target.Get<std::int64_t>(i) < 0) given.target.Set<std::int64_t>(i, i % 2);
        ExpectRight(given, op);
      }
}

// What is needed is asked for only with the outputs that need it; the others keep their bits.
TEST(LinearCrossEntropyLoss, AnySubsetOfOutputs) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const bool smooth : {false, true}) {
      Statistics given(dtype, {40});
      LinearCrossEntropyLoss all = given.op(Reduction::kMean);
      all.options.label_smoothing = smooth ? 0.1 : 0;
      BitsByGroup bits;
      ExpectRight(given, all, &bits);
      for (unsigned subset = 0; subset < 64; ++subset) {
        const auto has = [&](unsigned k) { return (subset >> k & 1u) != 0; };
        LinearCrossEntropyLoss op = all;
        if (!has(0)) op.loss = std::nullopt;
        if (!has(1)) op.lse = std::nullopt;
        if (!has(2)) op.log_probability = std::nullopt;
        if (!has(3)) op.entropy = std::nullopt;
        if (!has(4)) op.total_weight = std::nullopt;
        if (!has(5)) op.probability = std::nullopt;
        if (!has(0) && !has(2)) op.target_logit = std::nullopt;
        if (!has(0) || !smooth) op.smoothing = std::nullopt;
        if (!has(3)) op.moment = std::nullopt;
        if (!has(5)) op.logits = std::nullopt;
        const std::vector<Tensor*> outputs = given.outputs();
        OnTargets(op, outputs, {2}, [&](const Target& target) {
          for (unsigned k = 0; k < 6; ++k) {
            const std::vector<std::byte> untouched(outputs[k]->Bytes().size(), std::byte{0xFF});
            EXPECT_TRUE(SameBits(*outputs[k], has(k) ? bits.Of(target)[k] : untouched))
                << kOutputs[k] << " of subset " << subset;
          }
        });
      }
    }
}

// Without targets no position is ignored, and num_classes is read only for smoothing.
TEST(LinearCrossEntropyLoss, WithoutTargets) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Reduction reduction : kReductions)
      for (const bool smooth : {false, true})
        for (const bool tokens : {false, true}) {
          Statistics given(dtype, {4, 5});
          LinearCrossEntropyLoss op = given.op(reduction);
          op.target = std::nullopt;
          op.options.ignore_index = 0;
          op.options.label_smoothing = smooth ? 0.1 : 0;
          if (!smooth) op.num_classes = 0;
          if (tokens) op.options.token_weight = std::as_const(given.token_weight).view();
          ExpectRight(given, op);
        }
}

// With all classes of weight 1 the targets do nothing but ignore.
TEST(LinearCrossEntropyLoss, TargetsOfEveryDType) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Statistics given(dtype, {50});
    BitsByGroup bits;
    for (std::int64_t i = 0; i < 50; ++i)
      if (given.target.Get<std::int64_t>(i) < 0) given.target.Set<std::int64_t>(i, 29);
    for (const DType target : kTargetDTypes) {
      Tensor typed(target, {50});
      for (std::int64_t i = 0; i < 50; ++i) typed.SetValue(i, given.target.Value(i));
      LinearCrossEntropyLoss op = given.op(Reduction::kMean);
      op.target = std::as_const(typed).view();
      op.options.ignore_index = 29;
      op.options.weight = std::as_const(given.class_weight).view();
      ExpectRight(given, op, &bits);
    }
  }
}

// Results may be wider than the statistics; class and token weights f32 beside statistics of f64; a denominator f32.
TEST(LinearCrossEntropyLoss, DTypes) {
  for (const Reduction reduction : kReductions) {
    Statistics wide(DType::kF32, {12});
    wide.loss = Tensor(DType::kF64, {12}), wide.total_weight = Tensor(DType::kF64, {1, 1});
    ExpectRight(wide, wide.op(reduction));
    Statistics narrow(DType::kF64, {12});
    narrow.class_weight = Tensor(DType::kF32, {30}), narrow.token_weight = Tensor(DType::kF32, {12});
    narrow.denominator = Tensor(DType::kF32, {1});
    for (std::int64_t v = 0; v < 30; ++v) narrow.class_weight.SetValue(v, 0.3 + 0.1 * static_cast<double>(v));
    for (std::int64_t i = 0; i < 12; ++i) narrow.token_weight.SetValue(i, 0.7 + 0.3 * static_cast<double>(i));
    narrow.denominator.SetValue(0, 4.3);
    LinearCrossEntropyLoss op = narrow.op(reduction);
    op.options.weight = std::as_const(narrow.class_weight).view();
    op.options.token_weight = std::as_const(narrow.token_weight).view();
    op.options.denominator = std::as_const(narrow.denominator).view();
    ExpectRight(narrow, op);
    // A loss of 16 bits is that of f64, rounded once.
    for (const DType half : {DType::kF16, DType::kBF16}) {
      Statistics given(DType::kF32, {12});
      given.loss = Tensor(half, {12});
      LinearCrossEntropyLoss rounded = given.op(reduction);
      for (const Target& target : Targets<LinearCrossEntropyLoss>()) {
        EXPECT_OK(RunLike(target, rounded));
        Tensor exact(DType::kF64, given.loss.layout().rank == 0 ? Dims{} : Dims{12});
        LinearCrossEntropyLoss wide = rounded;
        wide.loss = exact.view();
        EXPECT_OK(RunLike(target, wide));
        Tensor once(half, {exact.numel()});
        once.SetAll(exact.Values());
        EXPECT_EQ(given.loss.Values(), once.Values());
      }
    }
  }
  // Logits of 16 bits, as a shard rounded them.
  for (const DType logits : {DType::kF16, DType::kBF16, DType::kF32}) {
    Statistics given(DType::kF32, {3, 4});
    Tensor rounded(logits, {3, 4, 9});
    rounded.SetAll(given.logits.Values());
    LinearCrossEntropyLoss op = given.op(Reduction::kMean);
    op.logits = std::as_const(rounded).view();
    ExpectRight(given, op);
  }
}

// The sum of many positions is taken in f64.
TEST(LinearCrossEntropyLoss, ManyPositions) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Statistics given(dtype, {20000});
    given.loss = Tensor(DType::kF64, {20000});
    LinearCrossEntropyLoss op = given.op(Reduction::kSum);
    op.probability = std::nullopt, op.logits = std::nullopt;
    ExpectRight(given, op);
    given.target.SetValue(19999, kDefaultIgnoreIndex);
    op = given.op(Reduction::kMean);
    op.probability = std::nullopt, op.logits = std::nullopt;
    ExpectRight(given, op);
  }
}

TEST(LinearCrossEntropyLoss, EverythingIgnoredAndNothingThere) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Dims& positions : {Dims{6}, Dims{0}, Dims{3, 0}})
      for (const Reduction reduction : kReductions)
        for (const bool zero_if_empty : {false, true})
          for (const bool denominator : {false, true}) {
            Statistics given(dtype, positions);
            for (std::int64_t i = 0; i < given.target.numel(); ++i)
              given.target.Set<std::int64_t>(i, kDefaultIgnoreIndex);
            LinearCrossEntropyLoss op = given.op(reduction);
            op.options.zero_if_empty = zero_if_empty, op.options.label_smoothing = 0.1, op.options.z_loss = 0.01;
            if (denominator) op.options.denominator = std::as_const(given.denominator).view();
            ExpectRight(given, op);
            if (reduction == Reduction::kMean && !zero_if_empty && !denominator) {
              OnTargets(op, given.outputs(), {1}, [&](const Target&) { EXPECT_TRUE(std::isnan(given.loss.Value(0))); });
            }
          }
}

// Whatever stands in positions that do not count.
TEST(LinearCrossEntropyLoss, NaNInIgnoredPositions) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Reduction reduction : kReductions) {
      Statistics given(dtype, {40});
      LinearCrossEntropyLoss op = given.op(reduction);
      op.options.label_smoothing = 0.1, op.options.z_loss = 0.01;
      op.options.token_weight = std::as_const(given.token_weight).view();
      BitsByGroup bits;
      ExpectRight(given, op, &bits);
      for (std::int64_t i = 0; i < 40; ++i) {
        if (given.target.Get<std::int64_t>(i) >= 0) continue;
        for (Tensor* tensor :
             {&given.max, &given.sum_exp, &given.target_logit, &given.smoothing, &given.moment, &given.token_weight})
          tensor->SetValue(i, kNaN);
        for (std::int64_t v = 0; v < 9; ++v) given.logits.SetValue(9 * i + v, v % 2 == 0 ? kNaN : HUGE_VAL);
      }
      ExpectRight(given, op, &bits);
    }
}

// class_axis and softcap are not read.
TEST(LinearCrossEntropyLoss, OptionsThatAreNotRead) {
  Statistics given(DType::kF32, {20});
  BitsByGroup bits;
  ExpectRight(given, given.op(Reduction::kMean), &bits);
  LinearCrossEntropyLoss op = given.op(Reduction::kMean);
  op.options.class_axis = -77, op.options.softcap = 3;
  ExpectRight(given, op, &bits);
}

TEST(LinearCrossEntropyLoss, Layouts) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const Reduction reduction : {Reduction::kNone, Reduction::kMean}) {
      const auto problem = [&](Statistics& given) {
        LinearCrossEntropyLoss op = given.op(reduction);
        op.options.label_smoothing = 0.1, op.options.z_loss = 0.01;
        op.options.token_weight = std::as_const(given.token_weight).view();
        op.options.weight = std::as_const(given.class_weight).view();
        return op;
      };
      Statistics dense(dtype, {4, 15});
      BitsByGroup bits;
      ExpectRight(dense, problem(dense), &bits);
      for (const Dims& strides : {Dims{1, 4}, Dims{45, 3}, Dims{-15, -1}, Dims{2, 100}}) {
        Statistics given(dtype, {4, 15});
        for (Tensor* tensor : {&given.max, &given.sum_exp, &given.target_logit, &given.smoothing, &given.moment,
                               &given.target, &given.token_weight, &given.lse, &given.log_probability, &given.entropy})
          *tensor = Relaid(*tensor, strides);
        if (reduction == Reduction::kNone) given.loss = Relaid(given.loss, strides);
        given.class_weight = Relaid(given.class_weight, {-3});
        ExpectRight(given, problem(given), &bits);
        given.logits = Relaid(given.logits, {9, 36, 1});
        given.probability = Relaid(given.probability, {1, 4, 61});
        ExpectRight(given, problem(given), &bits);
      }
    }
}

// A distance of infinity, of a class at -infinity that is the target; and all classes there.
TEST(LinearCrossEntropyLoss, Infinities) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Statistics given(dtype, {4});
    SetIndices(given.target, {0, 1, 2, 3});
    given.target_logit.SetValue(1, -HUGE_VAL);
    given.max.SetValue(2, -HUGE_VAL), given.sum_exp.SetValue(2, 0), given.moment.SetValue(2, 0);
    given.target_logit.SetValue(2, -HUGE_VAL);
    given.logits.SetValue(5, -HUGE_VAL);
    for (std::int64_t v = 0; v < 9; ++v) given.logits.SetValue(18 + v, -HUGE_VAL);
    ExpectRight(given, given.op(Reduction::kNone));
    OnTargets(given.op(Reduction::kNone), given.outputs(), {1}, [&](const Target&) {
      EXPECT_EQ(given.loss.Value(1), HUGE_VAL);
      EXPECT_TRUE(std::isnan(given.loss.Value(2)));
      EXPECT_EQ(given.lse.Value(2), -HUGE_VAL);
      EXPECT_EQ(given.probability.Value(5), 0);
    });
  }
}

}  // namespace
}  // namespace onehot::test
