// What runs, who says so, and the figures a plan gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "onehot/onehot.h"
#include "tests/native/cases.h"

namespace onehot::test {
namespace {

using ::testing::ElementsAre;

struct Small {
  BackwardProblem backward = MakeProblem({.N = 5, .V = 4, .D = 3});
  Tensor out = Tensor(DType::kF32, {5, 3});
  Embedding forward() { return {.weight = backward.out.view(), .indices = backward.indices.view(), .out = out.view()}; }
};

std::string Join(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

TEST(Select, TheListsEndWithRefAndNamesAreUnique) {
  for (const OperatorInfo& info : Operators()) {
    ASSERT_FALSE(info.implementations.empty());
    EXPECT_EQ(info.implementations.back(), "ref");
    EXPECT_EQ(std::set<std::string_view>(info.implementations.begin(), info.implementations.end()).size(),
              info.implementations.size());
  }
  ASSERT_EQ(Operators().size(), 10u);
  EXPECT_EQ(Operators()[0].name, "embedding");
  EXPECT_THAT(Operators()[0].implementations, ElementsAre("cpu:gather", "ref"));
  EXPECT_EQ(Operators()[1].name, "embedding_backward");
  EXPECT_THAT(Operators()[1].implementations, ElementsAre("cpu:grouped", "ref"));
  EXPECT_EQ(Operators()[2].name, "nll_loss");
  EXPECT_THAT(Operators()[2].implementations, ElementsAre("cpu:blocks", "ref"));
  EXPECT_EQ(Operators()[3].name, "nll_loss_backward");
  EXPECT_THAT(Operators()[3].implementations, ElementsAre("cpu:one_pass", "ref"));
  EXPECT_EQ(Operators()[4].name, "cross_entropy");
  EXPECT_THAT(Operators()[4].implementations, ElementsAre("cpu:batches", "ref"));
  EXPECT_EQ(Operators()[5].name, "cross_entropy_backward");
  EXPECT_THAT(Operators()[5].implementations, ElementsAre("cpu:batches", "ref"));
  EXPECT_EQ(Operators()[6].name, "linear_cross_entropy");
  EXPECT_THAT(Operators()[6].implementations, ElementsAre("cpu:bf16", "cpu:fused", "ref"));
  EXPECT_EQ(Operators()[7].name, "linear_cross_entropy_backward");
  EXPECT_THAT(Operators()[7].implementations, ElementsAre("cpu:bf16", "cpu:fused", "ref"));
  EXPECT_EQ(Operators()[8].name, "linear_cross_entropy_statistics");
  EXPECT_THAT(Operators()[8].implementations, ElementsAre("cpu:bf16", "cpu:fused", "ref"));
  EXPECT_EQ(Operators()[9].name, "linear_cross_entropy_loss");
  EXPECT_THAT(Operators()[9].implementations, ElementsAre("cpu:statistics", "ref"));
}

TEST(Select, InstructionSetsAreNamedOnce) {
  const std::vector<std::string_view> sets = InstructionSets();
  ASSERT_FALSE(sets.empty());
  EXPECT_EQ(std::set<std::string_view>(sets.begin(), sets.end()).size(), sets.size());
  for (const std::string_view set : sets) EXPECT_FALSE(set.empty());
  EXPECT_GE(DefaultThreads(), 1);
  EXPECT_EQ(Version(), ONEHOT_VERSION);
}

TEST(Select, UnforcedTakesTheFirstThatAcceptsAndTheBestInstructionSet) {
  const ScopedEnv force("ONEHOT_FORCE", nullptr), isa("ONEHOT_MAX_ISA", nullptr);
  Small p;
  Result<Plan> backward = Prepare(p.backward.op()), forward = Prepare(p.forward());
  ASSERT_TRUE(backward.ok() && forward.ok());
  EXPECT_EQ(backward->implementation(), "cpu:grouped");
  EXPECT_EQ(forward->implementation(), "cpu:gather");
  EXPECT_EQ(backward->instruction_set(), InstructionSets().front());
  ASSERT_EQ(backward->considered().size(), 1u);
  EXPECT_EQ(backward->considered()[0].implementation, "cpu:grouped");
  EXPECT_EQ(backward->considered()[0].refusal, "");
}

TEST(Select, ForceNamesTheImplementationThatRuns) {
  Small p;
  for (const std::string_view name : {"cpu:grouped", "ref"}) {
    const ScopedEnv force("ONEHOT_FORCE", std::string(name).c_str());
    Result<Plan> plan = Prepare(p.backward.op());
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->implementation(), name);
  }
  for (const std::string_view name : {"cpu:gather", "ref"}) {
    const ScopedEnv force("ONEHOT_FORCE", std::string(name).c_str());
    Result<Plan> plan = Prepare(p.forward());
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->implementation(), name);
  }
}

TEST(Select, ConsideredTellsWhyTheOthersWereNotTaken) {
  const ScopedEnv force("ONEHOT_FORCE", "ref");
  Small p;
  Result<Plan> plan = Prepare(p.backward.op());
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->considered().size(), 2u);
  EXPECT_EQ(plan->considered()[0].implementation, "cpu:grouped");
  EXPECT_EQ(plan->considered()[0].refusal, "ONEHOT_FORCE names another");
  EXPECT_EQ(plan->considered()[1].implementation, "ref");
  EXPECT_EQ(plan->considered()[1].refusal, "");
}

TEST(Select, UnknownForceIsAnError) {
  Small p;
  for (const char* name : {"fast", "cpu", "ref ", "REF"}) {
    const ScopedEnv force("ONEHOT_FORCE", name);
    EXPECT_STATUS(Prepare(p.backward.op()).status(), Code::kBadArgument,
                  std::string("ONEHOT_FORCE: must be one of cpu:grouped, ref for embedding_backward, is ") + name);
    EXPECT_STATUS(Prepare(p.forward()).status(), Code::kBadArgument,
                  std::string("ONEHOT_FORCE: must be one of cpu:gather, ref for embedding, is ") + name);
  }
}

// Variables that are there and empty count as not there.
TEST(Select, EmptyVariablesAreUnset) {
  const ScopedEnv force("ONEHOT_FORCE", ""), isa("ONEHOT_MAX_ISA", "");
  Small p;
  Result<Plan> plan = Prepare(p.backward.op());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->implementation(), "cpu:grouped");
}

TEST(Select, MaxIsaIsTheOneThatRuns) {
  Small p;
  for (const std::string_view name : InstructionSets()) {
    const ScopedEnv isa("ONEHOT_MAX_ISA", std::string(name).c_str());
    Result<Plan> plan = Prepare(p.backward.op());
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->instruction_set(), name);
  }
}

TEST(Select, UnknownMaxIsaIsAnError) {
  const ScopedEnv isa("ONEHOT_MAX_ISA", "AVX9");
  Small p;
  const std::string message = "ONEHOT_MAX_ISA: must be one of " + Join(InstructionSets()) + " on this CPU, is AVX9";
  EXPECT_STATUS(Prepare(p.backward.op()).status(), Code::kBadArgument, message);
  EXPECT_STATUS(Prepare(p.forward()).status(), Code::kBadArgument, message);
}

// Check comes first, so a bad problem is called bad whatever the environment says.
TEST(Select, CheckComesBeforeTheEnvironment) {
  const ScopedEnv force("ONEHOT_FORCE", "nothing");
  Small p;
  EmbeddingBackward op = p.backward.op();
  op.padding_idx = 4;
  EXPECT_STATUS(Prepare(op).status(), Code::kBadArgument, "padding_idx: must be in [-4, 4), the rows of out, is 4");
}

TEST(Select, TheEnvironmentIsReadWhenAPlanIsMade) {
  Small p;
  Result<Plan> plan = [&] {
    const ScopedEnv force("ONEHOT_FORCE", "ref");
    return Prepare(p.backward.op());
  }();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->implementation(), "ref");
  EXPECT_OK(plan->Run());
  EXPECT_EQ(plan->implementation(), "ref");
}

TEST(Select, LogSaysWhatWasTakenAndWhy) {
  Small p;
  const ScopedEnv log("ONEHOT_LOG", "1"), force("ONEHOT_FORCE", "ref");
  ::testing::internal::CaptureStderr();
  (void)Prepare(p.backward.op());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "onehot,plan,embedding_backward,cpu:grouped,ONEHOT_FORCE names another\n"
            "onehot,plan,embedding_backward,ref,taken\n");
}

// Nothing is printed unasked: not by plans, nor by runs, nor by failures.
TEST(Select, SilentUnlessAsked) {
  Small p;
  for (const char* value : {static_cast<const char*>(nullptr), "0", ""}) {
    const ScopedEnv log("ONEHOT_LOG", value);
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    Result<Plan> plan = Prepare(p.backward.op());
    (void)plan->Run();
    EmbeddingBackward bad = p.backward.op();
    bad.padding_idx = 99;
    (void)Prepare(bad);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  }
}

TEST(PlanFigures, BytesThatMustMove) {
  // N = 6, V = 100, D = 8.
  struct Row {
    DType grad, out, index;
    bool accumulate, counts;
    std::int64_t read, written;
  };
  const Row kTable[] = {
      {DType::kF32, DType::kF32, DType::kI64, false, false, 6 * 8 * 4 + 6 * 8, 100 * 8 * 4},
      {DType::kBF16, DType::kBF16, DType::kI32, false, false, 6 * 8 * 2 + 6 * 4, 100 * 8 * 2},
      {DType::kF16, DType::kF32, DType::kU8, false, true, 6 * 8 * 2 + 6, 100 * 8 * 4 + 100 * 8},
      // Only rows that are named are read and written: at most one for each position.
      {DType::kF64, DType::kF64, DType::kI64, true, true, 6 * 8 * 8 + 6 * 8 + 6 * 8 * 8, 6 * 8 * 8 + 100 * 8},
  };
  for (const Row& row : kTable)
    for (const Target& target : Targets<EmbeddingBackward>()) {
      BackwardProblem problem = MakeProblem({.N = 6,
                                             .V = 100,
                                             .D = 8,
                                             .grad = row.grad,
                                             .out = row.out,
                                             .index = row.index,
                                             .accumulate = row.accumulate,
                                             .counts = row.counts});
      Result<Plan> plan = PrepareOn(target, problem.op());
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->bytes_read(), row.read);
      EXPECT_EQ(plan->bytes_written(), row.written);
    }
}

TEST(PlanFigures, BytesOfTheForward) {
  for (const auto& [N, V, read] :
       {std::array<std::int64_t, 3>{6, 100, 6 * 8 * 4 + 6 * 8}, {200, 100, 100 * 8 * 4 + 200 * 8}}) {
    Tensor weight(DType::kF32, {V, 8}), indices(DType::kI64, {N}), out(DType::kF32, {N, 8});
    Result<Plan> plan = Prepare(Embedding{.weight = weight.view(), .indices = indices.view(), .out = out.view()});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->bytes_read(), read);
    EXPECT_EQ(plan->bytes_written(), N * 8 * 4);
  }
}

// Plans can be moved, and the moved one runs.
TEST(PlanFigures, Moves) {
  Small p;
  Result<Plan> made = Prepare(p.backward.op());
  ASSERT_TRUE(made.ok());
  Plan plan = std::move(made).value();
  Plan other = std::move(plan);
  EXPECT_OK(other.Run());
  Result<Plan> again = Prepare(p.backward.op());
  other = std::move(again).value();
  EXPECT_OK(other.Run());
}

}  // namespace
}  // namespace onehot::test
