// What Check refuses of a split vocabulary, each time with the argument and the value.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/native/linear_cross_entropy_shards_cases.h"

namespace onehot::test {
namespace {

double memory[8192];
std::int64_t numbers[64];

ConstTensorView In(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory, dtype, dims};
}
TensorView Out(DType dtype, std::initializer_list<std::int64_t> dims) {
  return {memory + 1000, dtype, dims};
}
DType Wide(DType input) {
  return input == DType::kF64 ? DType::kF64 : DType::kF32;
}
bool IsHalf(DType dtype) {
  return SizeOf(dtype) == 2 && dtype != DType::kI16;
}
bool IsTarget(DType dtype) {
  for (const DType good : kTargetDTypes)
    if (dtype == good) return true;
  return false;
}

// Input [2, 3, 4], and classes 6 to 10 of 12.
LinearCrossEntropyStatistics GoodStatistics(DType input = DType::kF32) {
  const DType wide = Wide(input);
  LinearCrossEntropyStatistics op{.input = In(input, {2, 3, 4}),
                                  .weight = In(input, {5, 4}),
                                  .target = ConstTensorView(numbers, DType::kI64, {2, 3}),
                                  .shard = VocabularyShard{.first = 6, .num_classes = 12},
                                  .max = Out(wide, {2, 3}),
                                  .sum_exp = Out(wide, {2, 3}),
                                  .target_logit = Out(wide, {2, 3}),
                                  .smoothing = Out(wide, {2, 3}),
                                  .moment = Out(wide, {2, 3}),
                                  .argmax = Out(DType::kI64, {2, 3}),
                                  .logits = Out(input, {2, 3, 5})};
  op.options.bias = In(input, {5});
  op.options.loss.weight = In(input, {12});
  return op;
}

LinearCrossEntropyLoss GoodLoss(DType dtype = DType::kF32) {
  LinearCrossEntropyLoss op{.max = In(dtype, {2, 3}),
                            .sum_exp = In(dtype, {2, 3}),
                            .target_logit = In(dtype, {2, 3}),
                            .smoothing = In(dtype, {2, 3}),
                            .moment = In(dtype, {2, 3}),
                            .target = ConstTensorView(numbers, DType::kI64, {2, 3}),
                            .num_classes = 12,
                            .logits = In(dtype, {2, 3, 5}),
                            .loss = Out(dtype, {}),
                            .lse = Out(dtype, {2, 3}),
                            .log_probability = Out(dtype, {2, 3}),
                            .entropy = Out(dtype, {2, 3}),
                            .total_weight = Out(dtype, {}),
                            .probability = Out(dtype, {2, 3, 5})};
  op.options.weight = In(dtype, {12});
  op.options.token_weight = In(dtype, {2, 3});
  op.options.denominator = In(DType::kF64, {});
  op.options.label_smoothing = 0.1;
  return op;
}

LinearCrossEntropyBackward GoodBackward(DType input = DType::kF32) {
  const DType wide = Wide(input);
  LinearCrossEntropyBackward op{.input = In(input, {2, 3, 4}),
                                .weight = In(input, {5, 4}),
                                .target = ConstTensorView(numbers, DType::kI64, {2, 3}),
                                .max = In(wide, {2, 3}),
                                .sum_exp = In(wide, {2, 3}),
                                .entropy = In(wide, {2, 3}),
                                .shard = VocabularyShard{.first = 6, .num_classes = 12}};
  op.upstream = {.loss = In(input, {}), .log_probability = In(wide, {2, 3}), .entropy = In(wide, {2, 3})};
  op.grad = {.input = Out(input, {2, 3, 4}), .weight = Out(input, {5, 4}), .bias = Out(input, {5})};
  op.options.bias = In(input, {5});
  op.options.loss.weight = In(input, {12});
  return op;
}

// With probability, and what that allows.
LinearCrossEntropyBackward GoodProbability(DType input = DType::kF32) {
  LinearCrossEntropyBackward op = GoodBackward(input);
  op.max = op.sum_exp = op.entropy = op.upstream.entropy = std::nullopt;
  op.probability = In(Wide(input), {2, 3, 5});
  return op;
}

// Check and Prepare must say the same, and name all that is in `names`.
template <class Op>
void ExpectRefused(const Op& op, Code code, const std::vector<std::string>& names) {
  const Status status = Check(op), prepared = Prepare(op).status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_EQ(prepared.code(), code);
  EXPECT_EQ(prepared.message(), status.message());
  for (const std::string& name : names)
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message() << " without " << name;
}

// Good, or refused for that dtype.
template <class Op>
void ExpectDType(const Op& op, bool good, const std::string& argument, DType dtype) {
  SCOPED_TRACE(argument + " " + std::string(Name(dtype)));
  if (good) {
    EXPECT_OK(Check(op));
    EXPECT_TRUE(Prepare(op).ok());
  } else {
    ExpectRefused(op, Code::kBadDType, {argument, "is " + std::string(Name(dtype))});
  }
}

template <class Op, class F>
Op With(Op op, F&& mistake) {
  mistake(op);
  return op;
}

TEST(LinearCrossEntropyShardsErrors, GoodIsGood) {
  for (const DType input : kGradientDTypes) {
    EXPECT_TRUE(Prepare(GoodStatistics(input)).ok());
    EXPECT_TRUE(Prepare(GoodBackward(input)).ok());
    EXPECT_TRUE(Prepare(GoodProbability(input)).ok());
    EXPECT_TRUE(Prepare(GoodLoss(Wide(input))).ok());
  }
  EXPECT_EQ(GoodStatistics().N(), 6);
  EXPECT_EQ(GoodStatistics().H(), 4);
  EXPECT_EQ(GoodStatistics().V(), 5);
  EXPECT_EQ(GoodLoss().N(), 6);
  // Nothing but what is required.
  const LinearCrossEntropyStatistics s = GoodStatistics();
  EXPECT_TRUE(Prepare(LinearCrossEntropyStatistics{.input = s.input, .weight = s.weight, .target = s.target}).ok());
  EXPECT_TRUE(Prepare(LinearCrossEntropyLoss{.max = GoodLoss().max, .sum_exp = GoodLoss().sum_exp}).ok());
  EXPECT_TRUE(Prepare(With(GoodBackward(), [](auto& op) { op.grad = {}, op.upstream = {}; })).ok());
}

// ---- dtypes

TEST(LinearCrossEntropyShardsErrors, DTypesOfStatistics) {
  using Op = LinearCrossEntropyStatistics;
  for (const DType input : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const Op good = GoodStatistics(input);
      const bool is_input = dtype == input, f32 = dtype == DType::kF32, wide = dtype == Wide(input);
      ExpectDType(With(good, [&](Op& op) { op.weight.dtype = dtype; }), is_input, "weight", dtype);
      ExpectDType(With(good, [&](Op& op) { op.target.dtype = dtype; }), IsTarget(dtype), "target", dtype);
      ExpectDType(With(good, [&](Op& op) { op.max->dtype = dtype; }), wide, "max", dtype);
      ExpectDType(With(good, [&](Op& op) { op.sum_exp->dtype = dtype; }), wide, "sum_exp", dtype);
      ExpectDType(With(good, [&](Op& op) { op.target_logit->dtype = dtype; }), wide, "target_logit", dtype);
      ExpectDType(With(good, [&](Op& op) { op.smoothing->dtype = dtype; }), wide, "smoothing", dtype);
      ExpectDType(With(good, [&](Op& op) { op.moment->dtype = dtype; }), wide, "moment", dtype);
      ExpectDType(With(good, [&](Op& op) { op.argmax->dtype = dtype; }), dtype == DType::kI64, "argmax", dtype);
      ExpectDType(With(good, [&](Op& op) { op.logits->dtype = dtype; }), is_input || f32, "logits", dtype);
      ExpectDType(With(good, [&](Op& op) { op.options.bias->dtype = dtype; }), is_input || f32, "bias", dtype);
      ExpectDType(With(good, [&](Op& op) { op.options.loss.weight->dtype = dtype; }), is_input || f32, "class weight",
                  dtype);
    }
  for (const DType dtype : kAllDTypes)
    if (dtype != DType::kF32 && dtype != DType::kF64 && !IsHalf(dtype))
      ExpectDType(With(GoodStatistics(), [&](Op& op) { op.input.dtype = op.weight.dtype = dtype; }), false, "input",
                  dtype);
}

TEST(LinearCrossEntropyShardsErrors, DTypesOfBackward) {
  using Op = LinearCrossEntropyBackward;
  for (const DType input : kGradientDTypes)
    for (const DType dtype : kAllDTypes) {
      const Op good = GoodBackward(input);
      const bool wide = dtype == Wide(input);
      ExpectDType(With(good, [&](Op& op) { op.max->dtype = dtype; }), wide, "max", dtype);
      ExpectDType(With(good, [&](Op& op) { op.sum_exp->dtype = dtype; }), wide, "sum_exp", dtype);
      ExpectDType(With(good, [&](Op& op) { op.entropy->dtype = dtype; }), wide, "entropy", dtype);
      ExpectDType(With(GoodProbability(input), [&](Op& op) { op.probability->dtype = dtype; }), wide, "probability",
                  dtype);
    }
}

TEST(LinearCrossEntropyShardsErrors, DTypesOfLoss) {
  using Op = LinearCrossEntropyLoss;
  for (const DType real : {DType::kF32, DType::kF64})
    for (const DType dtype : kAllDTypes) {
      const Op good = GoodLoss(real);
      const bool is_real = dtype == real, f32 = dtype == DType::kF32, f64 = dtype == DType::kF64;
      ExpectDType(With(good, [&](Op& op) { op.sum_exp.dtype = dtype; }), is_real, "sum_exp", dtype);
      ExpectDType(With(good, [&](Op& op) { op.target_logit->dtype = dtype; }), is_real, "target_logit", dtype);
      ExpectDType(With(good, [&](Op& op) { op.smoothing->dtype = dtype; }), is_real, "smoothing", dtype);
      ExpectDType(With(good, [&](Op& op) { op.moment->dtype = dtype; }), is_real, "moment", dtype);
      ExpectDType(With(good, [&](Op& op) { op.target->dtype = dtype; }), IsTarget(dtype), "target", dtype);
      ExpectDType(With(good, [&](Op& op) { op.loss->dtype = dtype; }),
                  is_real || f64 || (real == DType::kF32 && IsHalf(dtype)), "loss", dtype);
      ExpectDType(With(good, [&](Op& op) { op.total_weight->dtype = dtype; }), is_real || f64, "total_weight", dtype);
      ExpectDType(With(good, [&](Op& op) { op.probability->dtype = dtype; }), is_real, "probability", dtype);
      ExpectDType(With(good, [&](Op& op) { op.options.weight->dtype = dtype; }), is_real || f32, "class weight", dtype);
      ExpectDType(With(good, [&](Op& op) { op.options.token_weight->dtype = dtype; }), is_real || f32, "token_weight",
                  dtype);
      const bool logits = real == DType::kF64 ? f64 : f32 || IsHalf(dtype);
      ExpectDType(With(good, [&](Op& op) { op.logits->dtype = dtype; }), logits, "logits", dtype);
      if (dtype != DType::kF32 && dtype != DType::kF64)
        ExpectDType(With(good, [&](Op& op) { op.max.dtype = dtype; }), false, "max", dtype);
    }
}

// ---- which classes

TEST(LinearCrossEntropyShardsErrors, Shards) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  struct Case {
    std::int64_t first, num_classes;
    std::string value;  // of the one that is wrong
  };
  const Case cases[] = {{-1, 12, "-1"},      {8, 12, "8"},           {12, 12, "12"},     {0, 4, "4"},
                        {0, 0, "0"},         {0, -12, "-12"},        {kMost, kMost, ""}, {kMost, 12, ""},
                        {kLeast, kMost, ""}, {kMost - 4, kMost, ""}, {1, kLeast, ""}};
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.first) + " of " + std::to_string(c.num_classes));
    const auto split = [&](auto& op) {
      op.shard = VocabularyShard{.first = c.first, .num_classes = c.num_classes};
      op.options.loss.weight = std::nullopt;
    };
    ExpectRefused(With(GoodStatistics(), split), Code::kBadArgument, {"shard", c.value});
    ExpectRefused(With(GoodBackward(), split), Code::kBadArgument, {"shard", c.value});
  }
  // At either end, and all.
  for (const auto& [first, all] :
       {std::pair<std::int64_t, std::int64_t>{0, 12}, {7, 12}, {0, 5}, {kMost - 5, kMost}, {0, kMost}}) {
    const auto split = [&, first = first, all = all](auto& op) {
      op.shard = VocabularyShard{.first = first, .num_classes = all};
      op.options.loss.weight = std::nullopt;
    };
    EXPECT_OK(Check(With(GoodStatistics(), split)));
    EXPECT_OK(Check(With(GoodBackward(), split)));
  }
  // No classes.
  for (const std::int64_t first : {0, 12}) {
    const auto empty = [&](auto& op) {
      op.weight = In(DType::kF32, {0, 4}), op.options.bias = In(DType::kF32, {0});
      op.shard->first = first;
    };
    EXPECT_OK(Check(With(With(GoodStatistics(), empty), [](auto& op) { op.logits = Out(DType::kF32, {2, 3, 0}); })));
    EXPECT_OK(Check(With(With(GoodBackward(), empty), [](auto& op) {
      op.grad.weight = Out(DType::kF32, {0, 4}), op.grad.bias = Out(DType::kF32, {0});
    })));
  }
}

// ---- what goes with what

TEST(LinearCrossEntropyShardsErrors, WhatIsGiven) {
  using Op = LinearCrossEntropyBackward;
  const Code bad = Code::kBadArgument;
  const ConstTensorView per_position = In(DType::kF32, {2, 3}), probability = In(DType::kF32, {2, 3, 5});
  ExpectRefused(With(GoodBackward(), [](Op& op) { op.max = std::nullopt; }), bad, {"max", "sum_exp"});
  ExpectRefused(With(GoodBackward(), [](Op& op) { op.sum_exp = std::nullopt; }), bad, {"max", "sum_exp"});
  ExpectRefused(With(GoodBackward(), [&](Op& op) { op.lse = per_position; }), bad, {"lse", "max"});
  ExpectRefused(With(GoodProbability(), [&](Op& op) { op.lse = per_position; }), bad, {"lse", "probability"});
  ExpectRefused(With(GoodProbability(), [&](Op& op) { op.max = op.sum_exp = per_position; }), bad,
                {"max", "probability"});
  ExpectRefused(With(GoodBackward(), [&](Op& op) { op.lse = per_position, op.probability = probability; }), bad, {});
  ExpectRefused(With(GoodProbability(), [](Op& op) { op.options.loss.softcap = 7.5; }), bad,
                {"probability", "softcap", "7.5"});
  ExpectRefused(With(GoodProbability(), [](Op& op) { op.options.loss.z_loss = 0.25; }), bad,
                {"probability", "z_loss", "0.25"});
  ExpectRefused(With(GoodProbability(), [&](Op& op) { op.upstream.entropy = op.entropy = per_position; }), bad,
                {"probability", "upstream.entropy"});
  // A shard needs to be told of the others.
  ExpectRefused(With(GoodBackward(), [](Op& op) { op.max = op.sum_exp = std::nullopt; }), bad, {"shard"});
  ExpectRefused(With(GoodBackward(), [](Op& op) { op.entropy = std::nullopt; }), bad, {"entropy", "shard"});
  EXPECT_OK(Check(With(GoodBackward(), [](Op& op) { op.entropy = op.upstream.entropy = std::nullopt; })));
  EXPECT_OK(Check(With(GoodBackward(), [&](Op& op) { op.max = op.sum_exp = std::nullopt, op.lse = per_position; })));
  const auto unsplit = [](Op& op) { op.shard = std::nullopt, op.options.loss.weight = std::nullopt; };
  EXPECT_OK(Check(With(GoodBackward(), unsplit)));
  EXPECT_OK(Check(With(GoodProbability(), unsplit)));
  EXPECT_OK(
      Check(With(With(GoodBackward(), unsplit), [](Op& op) { op.max = op.sum_exp = op.entropy = std::nullopt; })));
}

TEST(LinearCrossEntropyShardsErrors, WhatALossNeeds) {
  using Op = LinearCrossEntropyLoss;
  const Code bad = Code::kBadArgument;
  const auto loss_alone = [](Op& op) { op.log_probability = std::nullopt; };
  const auto without_loss = [](Op& op) { op.loss = std::nullopt; };
  const auto no_logit = [](Op& op) { op.target_logit = std::nullopt; };
  ExpectRefused(With(With(GoodLoss(), loss_alone), no_logit), bad, {"target_logit", "loss"});
  ExpectRefused(With(With(GoodLoss(), without_loss), no_logit), bad, {"target_logit", "log_probability"});
  EXPECT_OK(Check(With(With(With(GoodLoss(), loss_alone), without_loss), no_logit)));
  const auto no_smoothing = [](Op& op) { op.smoothing = std::nullopt; };
  ExpectRefused(With(GoodLoss(), no_smoothing), bad, {"smoothing"});
  EXPECT_OK(Check(With(With(GoodLoss(), no_smoothing), without_loss)));
  EXPECT_OK(Check(With(With(GoodLoss(), no_smoothing), [](Op& op) { op.options.label_smoothing = 0; })));
  const auto no_moment = [](Op& op) { op.moment = std::nullopt; };
  ExpectRefused(With(GoodLoss(), no_moment), bad, {"moment", "entropy"});
  EXPECT_OK(Check(With(With(GoodLoss(), no_moment), [](Op& op) { op.entropy = std::nullopt; })));
  ExpectRefused(With(GoodLoss(), [](Op& op) { op.logits = std::nullopt; }), bad, {"logits", "probability"});
  EXPECT_OK(Check(With(GoodLoss(), [](Op& op) { op.logits = std::nullopt, op.probability = std::nullopt; })));
  ExpectRefused(With(GoodLoss(), [](Op& op) { op.target = std::nullopt; }), bad, {"target", "class weight"});
  EXPECT_OK(Check(With(GoodLoss(), [](Op& op) { op.target = op.options.weight = std::nullopt; })));
  ExpectRefused(With(GoodLoss(), [](Op& op) { op.num_classes = -12, op.options.weight = std::nullopt; }), bad,
                {"num_classes", "-12"});
}

// ---- attributes

TEST(LinearCrossEntropyShardsErrors, Attributes) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::pair<double, std::string> values[] = {{nan, "nan"}, {inf, "inf"}, {-inf, "-inf"}, {-0.5, "-0.5"}};
  for (const auto& [value, shown] : values) {
    const auto softcap = [value = value](auto& op) { op.options.loss.softcap = value; };
    ExpectRefused(With(GoodStatistics(), softcap), Code::kBadArgument, {"softcap", shown});
    ExpectRefused(With(GoodBackward(), softcap), Code::kBadArgument, {"softcap", shown});
    ExpectRefused(With(GoodLoss(), [value = value](auto& op) { op.options.label_smoothing = value; }),
                  Code::kBadArgument, {"label_smoothing", shown});
    ExpectRefused(With(GoodLoss(), [value = value](auto& op) { op.options.z_loss = value; }), Code::kBadArgument,
                  {"z_loss", shown});
    if (std::isfinite(value)) continue;
    const auto scale = [value = value](auto& op) { op.options.logit_scale = value; };
    ExpectRefused(With(GoodStatistics(), scale), Code::kBadArgument, {"logit_scale", shown});
    ExpectRefused(With(GoodBackward(), scale), Code::kBadArgument, {"logit_scale", shown});
  }
  ExpectRefused(With(GoodLoss(), [](auto& op) { op.options.reduction = static_cast<Reduction>(3); }),
                Code::kBadArgument, {"reduction", "3"});
}

TEST(LinearCrossEntropyShardsErrors, MaxWorkspace) {
  LinearCrossEntropy forward{
      .input = GoodBackward().input, .weight = GoodBackward().weight, .target = GoodBackward().target};
  for (const std::int64_t bytes : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    const auto limit = [&](auto& op) { op.options.max_workspace = bytes; };
    for (const auto& shown : {std::vector<std::string>{"max_workspace", std::to_string(bytes)}}) {
      ExpectRefused(With(forward, limit), Code::kBadArgument, shown);
      ExpectRefused(With(GoodStatistics(), limit), Code::kBadArgument, shown);
      ExpectRefused(With(GoodBackward(), limit), Code::kBadArgument, shown);
      ExpectRefused(With(GoodProbability(), limit), Code::kBadArgument, shown);
    }
  }
  for (const std::int64_t bytes : {std::int64_t{0}, std::numeric_limits<std::int64_t>::max()}) {
    const auto limit = [&](auto& op) { op.options.max_workspace = bytes; };
    EXPECT_TRUE(Prepare(With(forward, limit)).ok());
    EXPECT_TRUE(Prepare(With(GoodStatistics(), limit)).ok());
    EXPECT_TRUE(Prepare(With(GoodBackward(), limit)).ok());
    EXPECT_TRUE(Prepare(With(GoodProbability(), limit)).ok());
  }
}

// ---- shapes

TEST(LinearCrossEntropyShardsErrors, Shapes) {
  const Code bad = Code::kBadShape;
  const DType f32 = DType::kF32, i64 = DType::kI64;
  using S = LinearCrossEntropyStatistics;
  const S statistics = GoodStatistics();
  const auto per_position = Out(f32, {3, 2});
  ExpectRefused(With(statistics, [&](S& op) { op.max = per_position; }), bad, {"max", "[3, 2]"});
  ExpectRefused(With(statistics, [&](S& op) { op.sum_exp = per_position; }), bad, {"sum_exp", "[3, 2]"});
  ExpectRefused(With(statistics, [&](S& op) { op.target_logit = per_position; }), bad, {"target_logit", "[3, 2]"});
  ExpectRefused(With(statistics, [&](S& op) { op.smoothing = per_position; }), bad, {"smoothing", "[3, 2]"});
  ExpectRefused(With(statistics, [&](S& op) { op.moment = per_position; }), bad, {"moment", "[3, 2]"});
  ExpectRefused(With(statistics, [&](S& op) { op.argmax = Out(i64, {6}); }), bad, {"argmax", "[6]"});
  ExpectRefused(With(statistics, [&](S& op) { op.logits = Out(f32, {2, 3, 12}); }), bad, {"logits", "[2, 3, 12]"});
  ExpectRefused(With(statistics, [&](S& op) { op.logits = Out(f32, {6, 5}); }), bad, {"logits", "[6, 5]"});
  ExpectRefused(With(statistics, [&](S& op) { op.weight = In(f32, {4, 5}); }), bad, {"weight", "[4, 5]"});
  ExpectRefused(With(statistics, [&](S& op) { op.target = ConstTensorView(numbers, i64, {6}); }), bad,
                {"target", "[6]"});
  ExpectRefused(With(statistics, [&](S& op) { op.options.bias = In(f32, {12}); }), bad, {"bias", "[12]"});
  ExpectRefused(With(statistics, [&](S& op) { op.options.loss.weight = In(f32, {5}); }), bad, {"class weight", "[5]"});
  ExpectRefused(With(statistics, [&](S& op) { op.shard = std::nullopt; }), bad, {"class weight", "[12]"});

  using B = LinearCrossEntropyBackward;
  const B backward = GoodBackward();
  ExpectRefused(With(backward, [&](B& op) { op.max = per_position; }), bad, {"max", "[3, 2]"});
  ExpectRefused(With(backward, [&](B& op) { op.sum_exp = per_position; }), bad, {"sum_exp", "[3, 2]"});
  ExpectRefused(With(backward, [&](B& op) { op.entropy = per_position; }), bad, {"entropy", "[3, 2]"});
  ExpectRefused(With(GoodProbability(),
                     [&](B& op) {
                       op.probability = In(f32, {2, 3, 12});
                     }),
                bad, {"probability", "[2, 3, 12]"});
  ExpectRefused(With(backward, [&](B& op) { op.options.loss.weight = In(f32, {5}); }), bad, {"class weight", "[5]"});
  ExpectRefused(With(backward, [&](B& op) { op.grad.weight = Out(f32, {12, 4}); }), bad, {"grad.weight", "[12, 4]"});
  ExpectRefused(With(backward, [&](B& op) { op.grad.bias = Out(f32, {12}); }), bad, {"grad.bias", "[12]"});

  using L = LinearCrossEntropyLoss;
  const L loss = GoodLoss();
  ExpectRefused(With(loss, [&](L& op) { op.sum_exp = per_position; }), bad, {"sum_exp", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.target_logit = per_position; }), bad, {"target_logit", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.smoothing = per_position; }), bad, {"smoothing", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.moment = per_position; }), bad, {"moment", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.target = ConstTensorView(numbers, i64, {6}); }), bad, {"target", "[6]"});
  ExpectRefused(With(loss, [&](L& op) { op.logits = In(f32, {6, 5}); }), bad, {"logits", "[6, 5]"});
  ExpectRefused(With(loss, [&](L& op) { op.probability = Out(f32, {2, 3, 6}); }), bad, {"probability", "[2, 3, 6]"});
  ExpectRefused(With(loss, [&](L& op) { op.loss = Out(f32, {2, 3}); }), bad, {"loss", "[2, 3]"});
  ExpectRefused(With(loss, [&](L& op) { op.options.reduction = Reduction::kNone; }), bad, {"loss", "[]"});
  ExpectRefused(With(loss, [&](L& op) { op.lse = per_position; }), bad, {"lse", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.log_probability = per_position; }), bad, {"log_probability", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.entropy = per_position; }), bad, {"entropy", "[3, 2]"});
  ExpectRefused(With(loss, [&](L& op) { op.total_weight = Out(f32, {2}); }), bad, {"total_weight", "[2]"});
  ExpectRefused(With(loss, [&](L& op) { op.options.weight = In(f32, {5}); }), bad, {"class weight", "[5]"});
  ExpectRefused(With(loss, [&](L& op) { op.options.token_weight = In(f32, {6}); }), bad, {"token_weight", "[6]"});
  ExpectRefused(With(loss, [&](L& op) { op.options.denominator = In(f32, {2}); }), bad, {"denominator", "[2]"});
}

// Two elements of an output may not share an address.
TEST(LinearCrossEntropyShardsErrors, OutputsThatOverlapThemselves) {
  const auto expand = [](auto& tensor) { tensor->strides[0] = 0; };
  using S = LinearCrossEntropyStatistics;
  const std::pair<std::string, std::optional<TensorView> S::*> statistics[] = {{"max", &S::max},
                                                                               {"sum_exp", &S::sum_exp},
                                                                               {"target_logit", &S::target_logit},
                                                                               {"smoothing", &S::smoothing},
                                                                               {"moment", &S::moment},
                                                                               {"argmax", &S::argmax},
                                                                               {"logits", &S::logits}};
  for (const auto& [name, field] : statistics)
    ExpectRefused(With(GoodStatistics(), [&, field = field](S& op) { expand(op.*field); }), Code::kBadShape,
                  {name, "[0, "});
  using L = LinearCrossEntropyLoss;
  const std::pair<std::string, std::optional<TensorView> L::*> losses[] = {{"lse", &L::lse},
                                                                           {"log_probability", &L::log_probability},
                                                                           {"entropy", &L::entropy},
                                                                           {"probability", &L::probability}};
  for (const auto& [name, field] : losses)
    ExpectRefused(With(GoodLoss(), [&, field = field](L& op) { expand(op.*field); }), Code::kBadShape, {name, "[0, "});
  // Inputs may.
  EXPECT_OK(Check(With(GoodLoss(), [&](L& op) {
    expand(op.target_logit), expand(op.smoothing), expand(op.moment), expand(op.logits), expand(op.options.weight);
  })));
  using B = LinearCrossEntropyBackward;
  EXPECT_OK(Check(With(GoodBackward(), [&](B& op) { expand(op.max), expand(op.sum_exp), expand(op.entropy); })));
  EXPECT_OK(Check(With(GoodProbability(), [&](B& op) { expand(op.probability); })));
}

}  // namespace
}  // namespace onehot::test
