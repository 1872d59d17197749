// aclnnFusedLinearOnlineMaxSum: values against the definition, targets, masks.
#include <omp.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/aclnn/fused_call.h"
#include "tests/native/data.h"

namespace onehot::test::fused {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Where every target is elsewhere unless the test says otherwise.
struct Shard {
  Good good;
  explicit Shard(const Options& options, bool logits = false) : good({&kMaxSum, logits}, options) {}

  void SetTargets(const std::vector<std::int64_t>& targets) {
    for (std::size_t b = 0; b < targets.size(); ++b) good["target"].Set(static_cast<std::int64_t>(b), targets[b]);
  }
  void SetRange(std::int64_t start, std::int64_t end) { good.call.attributes = {.start = start, .end = end}; }
  void Run() {
    good.Clear();
    good.ExpectDone();
  }
  std::vector<double> Masked() { return good["maskedTargetOut"].Values(); }
  std::vector<int> Mask() {
    std::vector<int> bytes;
    for (std::int64_t k = 0; k < good["targetMaskOut"].numel(); ++k)
      bytes.push_back(good["targetMaskOut"].Get<std::uint8_t>(k));
    return bytes;
  }
};

TEST(FusedLinearOnlineMaxSum, ManySizes) {
  struct {
    std::int64_t tokens, columns, classes;
  } constexpr kSizes[] = {{1, 1, 1},     {1, 64, 1000}, {7, 3, 2},    {8, 33, 128},
                          {9, 16, 1025}, {32, 16, 64},  {129, 7, 300}};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const DType target_dtype : {DType::kI64, DType::kI32})
      for (const bool logits : {false, true})
        for (const auto& [tokens, columns, classes] : kSizes) {
          SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(columns) + " x " + std::to_string(classes));
          Good good(
              {&kMaxSum, logits},
              {.tokens = tokens, .columns = columns, .classes = classes, .dtype = dtype, .target_dtype = target_dtype});
          good.ExpectDoneAndRight();
        }
}

// Tokens 0 to 9 have classes 3 to 12; the shard is [4, 10).
TEST(FusedLinearOnlineMaxSum, TargetsAndMask) {
  Shard shard({.tokens = 10, .classes = 6});
  shard.SetTargets({3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  for (const std::int64_t end : {9, 10, 11, 1000}) {  // inclusive, exclusive, and beyond
    shard.SetRange(4, end);
    shard.Run();
    EXPECT_THAT(shard.Masked(), ElementsAre(0, 0, 1, 2, 3, 4, 5, 0, 0, 0));
    // Token 0 is the lowest bit: 1000'0001, and six bits beyond the last token.
    EXPECT_THAT(shard.Mask(), ElementsAre(0x81, 0xFF));
    for (const std::int64_t b : {0, 7, 8, 9}) EXPECT_EQ(shard.good["predictedLogitsLocalOut"].Value(b), 0);
    shard.good.ExpectRight();
  }
  shard.SetRange(4, 7);  // the range ends before the rows do
  shard.Run();
  EXPECT_THAT(shard.Masked(), ElementsAre(0, 0, 1, 2, 3, 0, 0, 0, 0, 0));
  EXPECT_THAT(shard.Mask(), ElementsAre(0xE1, 0xFF));
  shard.good.ExpectRight();
  shard.SetRange(12, 12);
  shard.Run();
  EXPECT_THAT(shard.Mask(), ElementsAre(0xFF, 0xFD));
  shard.good.ExpectRight();
}

// Sums of indices that leave 64 bits, and indices that are others when cut to 32.
TEST(FusedLinearOnlineMaxSum, TargetsAreComparedAsWholeNumbers) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max(),
                         kMin = std::numeric_limits<std::int64_t>::min();
  Shard shard({.tokens = 9, .classes = 3});
  shard.SetTargets({3, 8, -1, std::int64_t{1} << 31, (std::int64_t{1} << 32) + 1, kMin, kMax, -100, 2});
  shard.SetRange(0, kMax);
  shard.Run();
  EXPECT_THAT(shard.Mask(), ElementsAre(0xFF, 0xFE));
  EXPECT_THAT(shard.Masked(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 2));
  shard.SetRange(kMax - 1, kMax);
  shard.Run();
  EXPECT_THAT(shard.Mask(), ElementsAre(0xBF, 0xFF));
  EXPECT_THAT(shard.Masked(), ElementsAre(0, 0, 0, 0, 0, 0, 1, 0, 0));
  // Neighbours beyond 2^53, which a double does not tell apart.
  constexpr std::int64_t kLarge = (std::int64_t{1} << 53) + 1;
  shard.SetTargets({kLarge - 2, kLarge - 1, kLarge, kLarge + 1, kLarge + 2, kLarge + 3, 0, 1, 2});
  shard.SetRange(kLarge, kLarge + 1);
  shard.Run();
  EXPECT_THAT(shard.Mask(), ElementsAre(0xF3, 0xFF));
  EXPECT_THAT(shard.Masked(), ElementsAre(0, 0, 0, 1, 0, 0, 0, 0, 0));
}

TEST(FusedLinearOnlineMaxSum, NarrowTargets) {
  Good good({&kMaxSum, false}, {.tokens = 4, .classes = 3, .target_dtype = DType::kI32, .start = 0});
  const std::int32_t targets[] = {2, -1, std::numeric_limits<std::int32_t>::min(), 0};
  for (std::int64_t b = 0; b < 4; ++b) good["target"].Set(b, targets[b]);
  good.call.attributes.end = std::numeric_limits<std::int64_t>::max();
  good.ExpectDoneAndRight();
  EXPECT_THAT(good["maskedTargetOut"].Values(), ElementsAre(2, 0, 0, 0));
  EXPECT_EQ(good["targetMaskOut"].Get<std::uint8_t>(0), 0xF6);
}

// Padding bits are 1 for every number of tokens.
TEST(FusedLinearOnlineMaxSum, PaddingBitsOfTheMask) {
  for (std::int64_t tokens = 1; tokens <= 17; ++tokens) {
    Shard shard({.tokens = tokens, .classes = 3});
    shard.SetTargets(std::vector<std::int64_t>(static_cast<std::size_t>(tokens), 1));
    shard.SetRange(0, 3);
    shard.Run();
    std::vector<int> want(static_cast<std::size_t>(tokens / 8), 0);
    if (tokens % 8 != 0) want.push_back(0xFF << (tokens % 8) & 0xFF);
    EXPECT_EQ(shard.Mask(), want) << tokens;
  }
}

// The input and weight are {{1, 0}, {0, 1}, {1, 1}}; the losses .861995 .861995 .551445.
TEST(FusedLinearOnlineMaxSum, HandWorked) {
  Shard shard({.tokens = 3, .columns = 2, .classes = 3}, true);
  for (const char* tensor : {"input", "weight"}) shard.good[tensor].SetAll({1, 0, 0, 1, 1, 1});
  shard.SetTargets({0, 1, 2});
  shard.SetRange(0, 3);
  shard.Run();
  EXPECT_THAT(shard.good["vocabParallelLogitsOutOptional"].Values(), ElementsAre(1, 0, 1, 0, 1, 1, 1, 1, 2));
  EXPECT_THAT(shard.good["logitsMaxLocalOut"].Values(), ElementsAre(1, 1, 2));
  EXPECT_THAT(shard.good["predictedLogitsLocalOut"].Values(), ElementsAre(0, 0, 0));
  const double losses[] = {.861995, .861995, .551445};
  for (std::int64_t b = 0; b < 3; ++b)
    EXPECT_NEAR(std::log(shard.good["sumExpLogitsLocalOut"].Value(b)), losses[b], 1e-6);
}

// Logits beyond what 16 bits hold: 8 times 2^24, and a sum of 70000.
TEST(FusedLinearOnlineMaxSum, StatisticsAreFloats) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Shard large({.tokens = 1, .columns = 1, .classes = 8, .dtype = dtype});
    large.good["input"].SetAll({4096});
    large.good["weight"].SetAll(std::vector<double>(8, 4096));
    large.SetTargets({5});
    large.SetRange(0, 8);
    large.Run();
    EXPECT_EQ(large.good["logitsMaxLocalOut"].Value(0), 0x1p24);
    EXPECT_EQ(large.good["sumExpLogitsLocalOut"].Value(0), 8);
    EXPECT_EQ(large.good["predictedLogitsLocalOut"].Value(0), 0);

    Shard many({.tokens = 1, .columns = 1, .classes = 70000, .dtype = dtype});
    many.good["input"].SetAll({0});
    many.SetRange(0, 70000);
    many.Run();
    EXPECT_EQ(many.good["sumExpLogitsLocalOut"].Value(0), 70000);
  }
}

TEST(FusedLinearOnlineMaxSum, EmptyShard) {
  for (const bool logits : {false, true}) {
    Shard shard({.tokens = 9, .classes = 0, .start = 5}, logits);
    shard.SetTargets({5, 4, 6, 5, 5, 5, 5, 5, 5});
    shard.SetRange(5, 5);
    shard.Run();
    EXPECT_THAT(shard.good["logitsMaxLocalOut"].Values(), ::testing::Each(-kInfinity));
    EXPECT_THAT(shard.good["sumExpLogitsLocalOut"].Values(), ::testing::Each(0));
    EXPECT_THAT(shard.good["predictedLogitsLocalOut"].Values(), ::testing::Each(0));
    EXPECT_THAT(shard.Masked(), ::testing::Each(0));
    EXPECT_THAT(shard.Mask(), ElementsAre(0xFF, 0xFF));
  }
}

TEST(FusedLinearOnlineMaxSum, NoTokens) {
  for (const bool logits : {false, true}) Good({&kMaxSum, logits}, {.tokens = 0}).ExpectDoneAndRight();
}

// Every logit is the empty sum.
TEST(FusedLinearOnlineMaxSum, NoColumns) {
  for (const bool logits : {false, true}) {
    Good good({&kMaxSum, logits}, {.columns = 0});
    good.ExpectDoneAndRight();
    EXPECT_THAT(good["logitsMaxLocalOut"].Values(), ::testing::Each(0));
    EXPECT_THAT(good["sumExpLogitsLocalOut"].Values(), ::testing::Each(131));
  }
}

// H at its limit, in products whose sum is exact.
TEST(FusedLinearOnlineMaxSum, LongestRows) {
  constexpr std::int64_t kColumns = 65534;
  Shard shard({.tokens = 2, .columns = kColumns, .classes = 3}, false);
  Good& good = shard.good;
  for (std::int64_t h = 0; h < kColumns; ++h) {
    for (std::int64_t b = 0; b < 2; ++b) good["input"].SetValue(b * kColumns + h, b == 0 || h % 2 == 1 ? 1 : 0);
    for (std::int64_t v = 0; v < 3; ++v) good["weight"].SetValue(v * kColumns + h, v == 1 ? 1 : v == 2 ? -1 : 0);
  }
  shard.SetTargets({1, 0});
  shard.SetRange(0, 2);
  shard.Run();
  EXPECT_THAT(good["logitsMaxLocalOut"].Values(), ElementsAre(65534, 32767));
  EXPECT_THAT(good["sumExpLogitsLocalOut"].Values(), ElementsAre(1, 1));
  EXPECT_THAT(good["predictedLogitsLocalOut"].Values(), ElementsAre(0, -32767));
}

// With logits or without, twice, and on any number of threads.
TEST(FusedLinearOnlineMaxSum, SameBitsAlways) {
  const Options options{.tokens = 131, .columns = 33, .classes = 1300};
  const int before = omp_get_max_threads();
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3, 7})
    for (const bool logits : {true, false, true}) {
      omp_set_num_threads(threads);
      Good good({&kMaxSum, logits}, options);
      good.ExpectDone();
      std::vector<std::vector<std::byte>> results = good.Results();
      if (first.empty()) first = results;
      if (!logits) results.push_back(first.back());
      EXPECT_EQ(results, first) << threads << " threads";
    }
  omp_set_num_threads(before);
}

// NaN is its own token's affair.
TEST(FusedLinearOnlineMaxSum, NaNStaysInItsToken) {
  Good good({&kMaxSum, true}), plain({&kMaxSum, true});
  good["input"].SetValue(3 * 5 + 2, NAN);
  good.ExpectDone();
  plain.ExpectDone();
  for (std::int64_t b = 0; b < 11; ++b)
    for (const char* tensor : {"logitsMaxLocalOut", "sumExpLogitsLocalOut"}) {
      const double got = good[tensor].Value(b);
      EXPECT_TRUE(b == 3 ? std::isnan(got) : got == plain[tensor].Value(b)) << tensor << " " << b << ": " << got;
    }
  EXPECT_EQ(good["targetMaskOut"].Bytes(), plain["targetMaskOut"].Bytes());
  EXPECT_EQ(good["maskedTargetOut"].Bytes(), plain["maskedTargetOut"].Bytes());
}

}  // namespace
}  // namespace onehot::test::fused
