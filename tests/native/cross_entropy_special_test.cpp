// NaN, infinities, ties, ignored positions, nothing there at all, and targets that name no class.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/native/cross_entropy_cases.h"
#include "tests/native/cross_entropy_oracle.h"

namespace onehot::test {
namespace {

const double kNaN = std::nan("");
constexpr double kInf = std::numeric_limits<double>::infinity();

// N positions of C classes, the class axis last, first and between.
std::vector<CrossEntropyCase> WhereverClassesAre(std::int64_t N, std::int64_t C, CrossEntropyCase c = {}) {
  std::vector<CrossEntropyCase> all(3, c);
  all[0].dims = {N, C}, all[0].class_axis = 1;
  all[1].dims = {C, N}, all[1].class_axis = 0;
  all[2].dims = {1, N, C, 1}, all[2].class_axis = 2;
  return all;
}

void SetLogit(CrossEntropyProblem& problem, std::int64_t i, std::int64_t v, double value) {
  problem.input.SetValue(ClassPosition(problem.input.layout(), problem.c.axis(), i, v), value);
}
double Gradient(const CrossEntropyProblem& problem, std::int64_t i, std::int64_t v) {
  return problem.out.Value(ClassPosition(problem.out.layout(), problem.c.axis(), i, v));
}

bool IsPlusZero(double x) {
  return x == 0 && !std::signbit(x);
}

// ---- ignored positions

TEST(CrossEntropySpecial, IgnoredPositionsAreNotLookedAt) {
  for (const DType input : kGradientDTypes)
    for (const Reduction reduction : kReductions)
      for (CrossEntropyCase c : WhereverClassesAre(37, 70, {.input = input, .reduction = reduction, .ignored = 0})) {
        c = WithEverything(c);
        CrossEntropyProblem problem(c);
        const std::vector<std::int64_t> ignored = {0, 5, 6, 7, 20, 36};
        for (const std::int64_t i : ignored) problem.target.Set(i, c.ignore_index);
        const CrossEntropyDefinition want = Define(problem.forward());
        const Bounded gradient = Define(problem.backward());
        // Whatever stands there.
        for (const std::int64_t i : ignored) {
          for (std::int64_t v = 0; v < 70; ++v) SetLogit(problem, i, v, v % 3 == 0 ? kNaN : v % 3 == 1 ? kInf : -kInf);
          problem.grad_log_probability->SetValue(i, kNaN);
          problem.grad_entropy->SetValue(i, kInf);
          if (reduction == Reduction::kNone) problem.grad_loss->SetValue(i, -kInf);
        }
        SCOPED_TRACE(c.Describe());
        OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target& target) {
          for (const std::int64_t i : ignored) {
            if (reduction == Reduction::kNone) {
              EXPECT_TRUE(IsPlusZero(problem.loss.Value(i)));
            }
            EXPECT_TRUE(IsPlusZero(problem.lse.Value(i)));
            EXPECT_TRUE(IsPlusZero(problem.log_probability.Value(i)));
            EXPECT_TRUE(IsPlusZero(problem.entropy.Value(i)));
            EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), -1);
          }
          EXPECT_TRUE(Within(problem.loss, want.loss, UnitRoundoff(target, input, 70)));
          EXPECT_TRUE(Within(problem.lse, want.lse, UnitRoundoff(target, input, 70)));
        });
        for (const bool with_lse : {false, true}) {
          CrossEntropyBackward op = problem.backward();
          Tensor lse = problem.lse;
          for (std::int64_t i = 0; i < 37; ++i)
            lse.SetValue(i, static_cast<double>(want.lse.value[static_cast<std::size_t>(i)]));
          for (const std::int64_t i : ignored) lse.SetValue(i, kNaN);
          if (with_lse) op.lse = std::as_const(lse).view();
          OnTargets(op, {&problem.out}, {2}, [&](const Target& target) {
            for (const std::int64_t i : ignored)
              for (std::int64_t v = 0; v < 70; ++v) ASSERT_TRUE(IsPlusZero(Gradient(problem, i, v))) << i << " " << v;
            EXPECT_TRUE(Within(problem.out, gradient, UnitRoundoff(target, input, 70)));
          });
        }
      }
}

TEST(CrossEntropySpecial, EverythingIgnored) {
  for (const Reduction reduction : kReductions)
    for (const bool zero_if_empty : {false, true})
      for (const bool denominator : {false, true})
        for (const CrossEntropyCase& base : WhereverClassesAre(19, 21)) {
          CrossEntropyCase c = WithEverything(base);
          c.reduction = reduction, c.ignored = 1, c.denominator = denominator;
          CrossEntropyProblem problem(c);
          problem.zero_if_empty = zero_if_empty;
          SCOPED_TRACE(c.Describe());
          OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target&) {
            for (std::int64_t k = 0; k < problem.loss.numel(); ++k) {
              if (reduction == Reduction::kMean && !zero_if_empty && !denominator) {
                EXPECT_TRUE(std::isnan(problem.loss.Value(k)));
              } else {
                EXPECT_EQ(problem.loss.Value(k), 0);
              }
            }
            EXPECT_EQ(problem.total_weight.Value(0), 0);
          });
          problem.grad_loss->SetValue(0, kNaN);
          OnTargets(problem.backward(), {&problem.out}, {2}, [&](const Target&) {
            for (std::int64_t k = 0; k < problem.out.numel(); ++k) ASSERT_TRUE(IsPlusZero(problem.out.Value(k)));
          });
        }
}

TEST(CrossEntropySpecial, NoPositions) {
  for (const Dims& dims : {Dims{0, 5}, Dims{2, 3, 0, 7}, Dims{0, 0}, Dims{0, 3, 4, 4}, Dims{3, 0, 0}})
    for (const Reduction reduction : kReductions)
      for (const bool zero_if_empty : {false, true}) {
        CrossEntropyCase c = WithEverything({.dims = dims, .reduction = reduction});
        CrossEntropyProblem problem(c);
        problem.zero_if_empty = zero_if_empty;
        SCOPED_TRACE(c.Describe());
        OnTargets(problem.forward(), problem.outputs(), {1, 3}, [&](const Target&) {
          if (reduction == Reduction::kNone) return;
          if (reduction == Reduction::kMean && !zero_if_empty) {
            EXPECT_TRUE(std::isnan(problem.loss.Value(0)));
          } else {
            EXPECT_EQ(problem.loss.Value(0), 0);
          }
          EXPECT_EQ(problem.total_weight.Value(0), 0);
        });
        OnTargets(problem.backward(), {&problem.out}, {1, 3}, [](const Target&) {});
        // No memory is needed where there are no elements.
        CrossEntropyBackward op = problem.backward();
        op.input.data = op.target.data = op.out.data = nullptr;
        OnTargets(op, {&problem.out}, {1}, [](const Target&) {});
      }
}

// No target can be good, so all of them have to be ignored.
TEST(CrossEntropySpecial, NoClasses) {
  for (const Dims& dims : {Dims{4, 0}, Dims{2, 0, 2}}) {
    CrossEntropyCase c = WithEverything({.dims = dims, .reduction = Reduction::kNone, .ignored = 1});
    CrossEntropyProblem problem(c);
    OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target&) {
      for (std::int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(problem.loss.Value(i), 0);
        EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), -1);
      }
    });
    OnTargets(problem.backward(), {&problem.out}, {2}, [](const Target&) {});
    problem.target.Set<std::int64_t>(2, 0);
    const std::string message =
        (dims.size() == 2 ? "target[2]" : "target[1, 0] (position 2)") + std::string(" = 0 is outside [0, 0)");
    ExpectBadData(problem.forward(), problem.outputs(), message);
    ExpectBadData(problem.backward(), {&problem.out}, message);
  }
}

TEST(CrossEntropySpecial, OneClass) {
  for (const CrossEntropyCase& c : WhereverClassesAre(19, 1, {.reduction = Reduction::kNone, .ignored = 0})) {
    CrossEntropyProblem problem(c);
    OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target&) {
      for (std::int64_t i = 0; i < 19; ++i) {
        EXPECT_EQ(problem.loss.Value(i), 0);
        EXPECT_EQ(problem.lse.Value(i), problem.input.Value(i));
        EXPECT_EQ(problem.entropy.Value(i), 0);
        EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), 0);
      }
    });
    OnTargets(problem.backward(), {&problem.out}, {2}, [&](const Target&) {
      for (std::int64_t i = 0; i < 19; ++i) EXPECT_EQ(problem.out.Value(i), 0);
    });
  }
}

// ---- argmax

TEST(CrossEntropySpecial, ArgmaxTakesTheLowestOfEqualsAndTheFirstNaN) {
  struct Case {
    std::vector<std::int64_t> largest;  // 7, or -0 and 0 by turns
    std::vector<std::int64_t> nan;
    std::int64_t want;
  };
  const std::vector<Case> cases = {{{0, 1, 2999}, {}, 0},
                                   {{17, 2050}, {}, 17},
                                   {{33, 49, 65}, {}, 33},
                                   {{1023, 1024}, {}, 1023},
                                   {{1024, 2048}, {}, 1024},
                                   {{2999}, {}, 2999},
                                   {{5, 4 + 16, 3 + 32}, {}, 5},
                                   {{1040, 15 + 1024}, {}, 1039},
                                   {{3}, {2000, 2017, 2999}, 2000},
                                   {{2047}, {31, 16, 1024}, 16},
                                   {{}, {0, 1}, 0},
                                   {{0}, {2999}, 2999}};
  for (const DType input : kGradientDTypes)
    for (const bool zeros : {false, true})
      for (const CrossEntropyCase& c :
           WhereverClassesAre(static_cast<std::int64_t>(cases.size()), 3000, {.input = input, .ignored = 0})) {
        CrossEntropyProblem problem(c);
        for (std::size_t i = 0; i < cases.size(); ++i) {
          const auto position = static_cast<std::int64_t>(i);
          for (std::int64_t v = 0; v < 3000; ++v) SetLogit(problem, position, v, -1 - static_cast<double>(v * 7 % 11));
          double sign = -1;
          for (const std::int64_t v : cases[i].largest)
            SetLogit(problem, position, v, zeros ? std::copysign(0, sign = -sign) : 7);
          for (const std::int64_t v : cases[i].nan) SetLogit(problem, position, v, kNaN);
        }
        for (const bool alone : {false, true}) {
          CrossEntropy op = problem.forward();
          if (alone) op.loss = op.lse = op.log_probability = op.entropy = op.total_weight = std::nullopt;
          OnTargets(op, problem.outputs(), {2}, [&](const Target&) {
            for (std::size_t i = 0; i < cases.size(); ++i)
              EXPECT_EQ(problem.argmax.Get<std::int64_t>(static_cast<std::int64_t>(i)), cases[i].want) << "case " << i;
          });
        }
      }
}

// ---- infinities and NaN

// A class at -infinity: no probability, no gradient, and as if it were not there.
TEST(CrossEntropySpecial, ClassesAtMinusInfinity) {
  for (const DType input : kGradientDTypes)
    for (const std::int64_t C : {5, 70, 1100})
      for (const double softcap : {0., 20.})
        for (const bool smoothing : {false, true})
          for (const CrossEntropyCase& base : WhereverClassesAre(9, C, {.input = input, .ignored = 0})) {
            CrossEntropyCase c = base;
            c.softcap = softcap, c.r = c.h = true, c.z_loss = 1e-3, c.reduction = Reduction::kNone;
            c.weight = true, c.label_smoothing = smoothing ? 0.1 : 0;
            CrossEntropyProblem problem(c);
            for (std::int64_t i = 0; i < 9; ++i)
              for (std::int64_t v = 0; v < C; ++v)
                if (v % 5 == 1 || (v % 5 == 3 && v > 1000)) SetLogit(problem, i, v, -kInf);
            for (std::int64_t v = 0; v < C; ++v)
              if (v % 5 == 1 || (v % 5 == 3 && v > 1000)) problem.weight->SetValue(v, 0);
            SetIndices(problem.target, {0, 2, 4, 0, 2, 4, 0, 2, 4});
            ExpectRightEverywhere(problem, {1});
            OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
              for (std::int64_t i = 0; i < 9; ++i)
                for (std::int64_t v = 1; v < C; v += 5) ASSERT_EQ(Gradient(problem, i, v), 0) << i << " " << v;
            });
            if (!smoothing) continue;
            // A class weight that is not 0: infinite, as in PyTorch.
            problem.weight->SetValue(1, 0.5);
            OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
              for (std::int64_t i = 0; i < 9; ++i) {
                EXPECT_EQ(problem.loss.Value(i), kInf);
                EXPECT_TRUE(std::isfinite(problem.lse.Value(i)));
                EXPECT_TRUE(std::isfinite(problem.entropy.Value(i)));
              }
            });
            problem.weight.reset();
            OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
              for (std::int64_t i = 0; i < 9; ++i) EXPECT_EQ(problem.loss.Value(i), kInf);
            });
          }
}

// Whatever else is asked for: statistics take another way with the entropy.
TEST(CrossEntropySpecial, AllClassesAtMinusInfinity) {
  for (const CrossEntropyCase& c : WhereverClassesAre(9, 5, {.ignored = 0})) {
    CrossEntropyProblem problem(c);
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t v = 0; v < 5; ++v) SetLogit(problem, i, v, -kInf);
    for (const bool entropy : {true, false}) {
      CrossEntropy op = problem.forward();
      if (!entropy) op.entropy.reset();
      OnTargets(op, {&problem.lse, &problem.loss, &problem.argmax}, {1}, [&](const Target&) {
        for (std::int64_t i = 0; i < 9; ++i) {
          EXPECT_EQ(problem.lse.Value(i), -kInf) << i;
          EXPECT_EQ(problem.argmax.Get<std::int64_t>(i), 0) << i;
        }
        EXPECT_TRUE(std::isnan(problem.loss.Value(0)));
      });
    }
  }
}

TEST(CrossEntropySpecial, TargetAtMinusInfinity) {
  for (const CrossEntropyCase& c : WhereverClassesAre(3, 40, {.reduction = Reduction::kNone, .ignored = 0})) {
    CrossEntropyProblem problem(c);
    SetIndices(problem.target, {0, 7, 39});
    SetLogit(problem, 1, 7, -kInf);
    problem.grad_loss->SetAll({1, 2, 3});
    ExpectRightEverywhere(problem, {1});
    OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
      EXPECT_EQ(problem.loss.Value(1), kInf);
      EXPECT_EQ(problem.log_probability.Value(1), -kInf);
      EXPECT_TRUE(std::isfinite(problem.loss.Value(0)) && std::isfinite(problem.loss.Value(2)));
    });
  }
}

// Whole blocks of classes, and lanes, at -infinity before the first that is not.
TEST(CrossEntropySpecial, BlocksAtMinusInfinity) {
  for (const std::int64_t only : {0, 15, 1023, 1024, 2500, 2999})
    for (const CrossEntropyCase& c :
         WhereverClassesAre(3, 3000, {.reduction = Reduction::kNone, .ignored = 0, .h = true})) {
      CrossEntropyProblem problem(c);
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t v = 0; v < 3000; ++v)
          if (v != only && (i != 1 || v > only)) SetLogit(problem, i, v, -kInf);
      SetIndices(problem.target, {only, only, only});
      ExpectRightEverywhere(problem, {1});
      OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
        EXPECT_EQ(problem.loss.Value(0), 0);
        EXPECT_EQ(problem.entropy.Value(0), 0);
        EXPECT_EQ(problem.argmax.Get<std::int64_t>(2), only);
      });
    }
}

// NaN and +infinity spoil their position and no other; so does -infinity in all classes.
TEST(CrossEntropySpecial, SpoiledPositionsSpoilNoOther) {
  for (const DType input : kGradientDTypes)
    for (const std::int64_t C : {3, 40, 1500})
      for (const CrossEntropyCase& base : WhereverClassesAre(35, C, {.input = input, .ignored = 0})) {
        CrossEntropyCase c = base;
        c.r = c.h = true, c.label_smoothing = 0.1, c.z_loss = 1e-3, c.reduction = Reduction::kNone;
        CrossEntropyProblem problem(c);
        const std::vector<std::int64_t> spoiled = {2, 3, 17, 34};
        CrossEntropyProblem good = problem;
        SetLogit(problem, 2, C - 1, kNaN);
        SetLogit(problem, 3, C / 2, kInf);
        SetLogit(problem, 17, 0, kNaN);
        SetLogit(problem, 17, 1, kInf);
        for (std::int64_t v = 0; v < C; ++v) SetLogit(problem, 34, v, -kInf);
        SCOPED_TRACE(c.Describe());
        OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target& target) {
          EXPECT_OK(RunOn(target, good.forward()));
          for (std::int64_t i = 0; i < 35; ++i) {
            const bool is_spoiled = std::ranges::find(spoiled, i) != spoiled.end();
            for (std::size_t k = 0; k < 4; ++k) {
              const double value = problem.outputs()[k]->Value(i);
              if (!is_spoiled) {
                ASSERT_EQ(value, good.outputs()[k]->Value(i)) << "output " << k << " position " << i;
              } else if (i != 34) {
                ASSERT_TRUE(std::isnan(value)) << "output " << k << " position " << i << " is " << value;
              }
            }
          }
          EXPECT_TRUE(std::isnan(problem.loss.Value(34)));
          EXPECT_EQ(problem.lse.Value(34), -kInf);
          EXPECT_EQ(problem.argmax.Get<std::int64_t>(2), C - 1);
          EXPECT_EQ(problem.argmax.Get<std::int64_t>(3), C / 2);
          EXPECT_EQ(problem.argmax.Get<std::int64_t>(17), 0);
          EXPECT_EQ(problem.argmax.Get<std::int64_t>(34), 0);
        });
        OnTargets(problem.backward(), {&problem.out}, {2}, [&](const Target& target) {
          EXPECT_OK(RunOn(target, good.backward()));
          for (std::int64_t i = 0; i < 35; ++i)
            for (std::int64_t v = 0; v < C; ++v) {
              if (std::ranges::find(spoiled, i) == spoiled.end()) {
                ASSERT_EQ(Gradient(problem, i, v), Gradient(good, i, v)) << i << " " << v;
              } else if (i != 34) {
                ASSERT_TRUE(std::isnan(Gradient(problem, i, v))) << i << " " << v;
              }
            }
        });
        problem.c.reduction = Reduction::kSum;
        problem.loss = Tensor(input, {});
        OnTargets(problem.forward(), problem.outputs(), {2},
                  [&](const Target&) { EXPECT_TRUE(std::isnan(problem.loss.Value(0))); });
      }
}

// A cap makes +infinity finite: z = c, and the slope there is 0.
TEST(CrossEntropySpecial, SoftcapOfInfinity) {
  for (const CrossEntropyCase& c :
       WhereverClassesAre(4, 37, {.softcap = 5, .reduction = Reduction::kNone, .ignored = 0})) {
    CrossEntropyProblem problem(c);
    for (std::int64_t i = 0; i < 4; ++i) SetLogit(problem, i, 9 + i, kInf);
    SetLogit(problem, 2, 3, 1e30);
    SetLogit(problem, 2, 4, -1e30);
    ExpectRightEverywhere(problem, {1});
  }
}

// ---- denominators

TEST(CrossEntropySpecial, DenominatorsOfZeroAreIeee) {
  for (const double value : {0., -0.}) {
    CrossEntropyProblem problem({.dims = {5, 7}, .denominator = true, .ignored = 0});
    problem.target.Set(1, kDefaultIgnoreIndex);
    problem.denominator->SetValue(0, value);
    for (const bool zero_if_empty : {false, true}) {
      problem.zero_if_empty = zero_if_empty;  // positions count, so it changes nothing
      OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
        EXPECT_EQ(problem.loss.Value(0), std::signbit(value) ? -kInf : kInf);
        EXPECT_EQ(problem.total_weight.Value(0), 4);
      });
    }
    OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
      for (std::int64_t k = 0; k < 35; ++k) {
        if (k / 7 == 1) {
          EXPECT_TRUE(IsPlusZero(problem.out.Value(k)));
        } else {
          EXPECT_FALSE(std::isfinite(problem.out.Value(k)));
        }
      }
    });
  }
  // Weights of 0 at every target: 0 / 0.
  CrossEntropyProblem problem({.dims = {5, 7}, .token_weight = true, .ignored = 0});
  problem.zero_if_empty = true;
  for (std::int64_t i = 0; i < 5; ++i) problem.token_weight->SetValue(i, 0);
  OnTargets(problem.forward(), problem.outputs(), {1}, [&](const Target&) {
    EXPECT_TRUE(std::isnan(problem.loss.Value(0)));
    EXPECT_EQ(problem.total_weight.Value(0), 0);
  });
  OnTargets(problem.backward(), {&problem.out}, {1}, [&](const Target&) {
    for (std::int64_t k = 0; k < 35; ++k) EXPECT_FALSE(std::isfinite(problem.out.Value(k)));
  });
}

// Not read where the reduction is not mean: then it may be anything, also no memory.
TEST(CrossEntropySpecial, DenominatorIsReadByMeanAlone) {
  for (const Reduction reduction : {Reduction::kNone, Reduction::kSum}) {
    CrossEntropyProblem problem({.dims = {5, 7}, .denominator = true, .reduction = reduction});
    CrossEntropyProblem without({.dims = {5, 7}, .reduction = reduction});
    CrossEntropyBackward op = problem.backward();
    op.options.denominator->data = nullptr;
    OnTargets(op, {&problem.out}, {1}, [&](const Target& target) {
      EXPECT_OK(RunOn(target, without.backward()));
      EXPECT_TRUE(SameBits(problem.out, without.out.Bytes()));
    });
    CrossEntropy forward = problem.forward();
    forward.options.denominator->data = nullptr;
    OnTargets(forward, problem.outputs(), {1}, [&](const Target& target) {
      EXPECT_OK(RunOn(target, without.forward()));
      EXPECT_TRUE(SameBits(problem.loss, without.loss.Bytes()));
    });
  }
}

// Negative class weights are numbers like others.
TEST(CrossEntropySpecial, NegativeWeights) {
  for (const double smoothing : {0., 0.2, 1.}) {
    CrossEntropyCase c{.dims = {31, 6}, .weight = true, .token_weight = true, .label_smoothing = smoothing};
    for (const Reduction reduction : kReductions) {
      c.reduction = reduction;
      CrossEntropyProblem problem(c);
      problem.weight->SetAll({-1, 2, 0.5, -0.0, 3, -0.25});
      ExpectRightEverywhere(problem);
    }
  }
}

// f16 holds numbers up to 65504: a total above is +infinity there, and the loss right nevertheless.
TEST(CrossEntropySpecial, TotalWeightAboveF16) {
  CrossEntropyProblem problem({.dims = {70001, 2}, .input = DType::kF16, .ignored = 0});
  const CrossEntropyDefinition want = Define(problem.forward());
  OnTargets(problem.forward(), problem.outputs(), {2}, [&](const Target& target) {
    EXPECT_EQ(problem.total_weight.Value(0), kInf);
    EXPECT_TRUE(Within(problem.loss, want.loss, UnitRoundoff(target, DType::kF16, 2)));
  });
  problem.total_weight = Tensor(DType::kF32, {});
  OnTargets(problem.forward(), problem.outputs(), {2},
            [&](const Target&) { EXPECT_EQ(problem.total_weight.Value(0), 70001); });
}

}  // namespace
}  // namespace onehot::test
