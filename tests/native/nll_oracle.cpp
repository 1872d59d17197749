#include "tests/native/nll_oracle.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "tests/native/oracle.h"

namespace onehot::test {
namespace {

double At(const ConstTensorView& tensor, std::int64_t position) {
  return ValueAt(tensor, tensor.data, OffsetOf(tensor, position));
}

double FactorAt(const std::optional<ConstTensorView>& tensor, std::int64_t position) {
  return tensor ? At(*tensor, position) : 1;
}

// Not by way of double, which has no room for all of i64.
std::int64_t TargetAt(const ConstTensorView& target, std::int64_t position) {
  using Integers = Types<std::int64_t, std::int32_t, std::int16_t, std::int8_t, std::uint8_t>;
  const std::int64_t offset = OffsetOf(target, position);
  return ForDType(Integers{}, target.dtype,
                  [&]<class I>() { return static_cast<std::int64_t>(static_cast<const I*>(target.data)[offset]); });
}

// The row-major place of class y of position i in a tensor with a class axis.
class Places {
 public:
  Places(const TensorLayout& classes, int axis) : C_(classes.dim(axis)) {
    for (int a = axis + 1; a < classes.rank; ++a) inner_ *= classes.dim(a);
  }
  std::int64_t operator()(std::int64_t i, std::int64_t y) const { return (i / inner_ * C_ + y) * inner_ + i % inner_; }

 private:
  std::int64_t C_, inner_ = 1;
};

template <class T>
void Append(Bits& bits, T value) {
  bits.resize(bits.size() + sizeof(T));
  std::memcpy(bits.data() + bits.size() - sizeof(T), &value, sizeof(T));
}

using LossTypesHere = Types<float, double, F16, BF16>;

void AppendRounded(Bits& bits, DType dtype, double value) {
  ForDType(LossTypesHere{}, dtype, [&]<class T>() { Append(bits, Narrow<T>(value)); });
}

// The sum of terms in the promised order.
double Ordered(const std::vector<double>& terms) {
  double total = 0;
  for (std::size_t begin = 0; begin < terms.size(); begin += 4096) {
    double lane[16] = {};
    for (std::size_t i = begin; i < std::min(begin + 4096, terms.size()); ++i) lane[i % 16] += terms[i];
    double eight[8], four[4];
    for (int j = 0; j < 8; ++j) eight[j] = lane[j] + lane[j + 8];
    for (int j = 0; j < 4; ++j) four[j] = eight[j] + eight[j + 4];
    total += (four[0] + four[2]) + (four[1] + four[3]);
  }
  return total;
}

template <class Real, class T>
Bits PromiseAs(const NllLossBackward& op) {
  const std::int64_t count = op.out.numel();
  std::vector<T> out(static_cast<std::size_t>(count), T{});
  if (op.accumulate)
    for (std::int64_t k = 0; k < count; ++k)
      out[static_cast<std::size_t>(k)] = static_cast<const T*>(op.out.data)[OffsetOf(op.out, k)];
  std::optional<Places> place;
  if (!op.compact) place.emplace(op.out, op.ClassAxis());
  for (std::int64_t i = 0; i < op.target.numel(); ++i) {
    const std::int64_t y = TargetAt(op.target, i);
    if (y == op.ignore_index) continue;
    auto value = static_cast<Real>(At(op.grad_output, op.reduction == Reduction::kNone ? i : 0));
    if (op.weight && op.token_weight) {
      const Real weight = static_cast<Real>(At(*op.weight, y)) * static_cast<Real>(At(*op.token_weight, i));
      value = weight * value;
    } else if (op.weight) {
      value = static_cast<Real>(At(*op.weight, y)) * value;
    } else if (op.token_weight) {
      value = static_cast<Real>(At(*op.token_weight, i)) * value;
    }
    if (op.reduction == Reduction::kMean) value = value / static_cast<Real>(At(*op.total_weight, 0));
    T& element = out[static_cast<std::size_t>(op.compact ? i : (*place)(i, y))];
    element = Narrow<T>(op.accumulate ? static_cast<Real>(Widen(element)) + -value : -value);
  }
  Bits bits(out.size() * sizeof(T));
  if (!bits.empty()) std::memcpy(bits.data(), out.data(), bits.size());
  return bits;
}

struct Term {
  long double loss = 0, weight = 0;
  bool counts = false;
};

std::vector<Term> Terms(const NllLoss& op) {
  const Places place(op.input, op.ClassAxis());
  std::vector<Term> terms(static_cast<std::size_t>(op.target.numel()));
  for (std::int64_t i = 0; i < op.target.numel(); ++i) {
    const std::int64_t y = TargetAt(op.target, i);
    if (y == op.ignore_index) continue;
    Term& term = terms[static_cast<std::size_t>(i)];
    term.counts = true;
    term.weight = static_cast<long double>(FactorAt(op.weight, y)) * FactorAt(op.token_weight, i);
    term.loss = -term.weight * At(op.input, place(i, y));
  }
  return terms;
}

// A sum and what the promised one may be off by.
struct Sum {
  long double value = 0, magnitude = 0, terms = 0;
  long double bound() const { return (terms + 2) * 0x1p-53L * magnitude; }
  void Add(long double x) { value += x, magnitude += std::abs(x), terms += 1; }
};

}  // namespace

NllPromise Promise(const NllLoss& op) {
  const Places place(op.input, op.ClassAxis());
  NllPromise want;
  std::vector<double> losses, weights;
  bool none_counts = true;
  for (std::int64_t i = 0; i < op.target.numel(); ++i) {
    const std::int64_t y = TargetAt(op.target, i);
    losses.push_back(0), weights.push_back(0);
    if (y == op.ignore_index) continue;
    none_counts = false;
    weights.back() = FactorAt(op.weight, y) * FactorAt(op.token_weight, i);
    losses.back() = -(weights.back() * At(op.input, place(i, y)));
  }
  const double D = op.reduction == Reduction::kNone ? 0 : Ordered(weights);
  if (op.total_weight) AppendRounded(want.total_weight, op.total_weight->dtype, D);
  if (op.reduction == Reduction::kNone) {
    for (const double loss : losses) AppendRounded(want.loss, op.loss.dtype, loss);
    return want;
  }
  double loss = Ordered(losses);
  if (op.reduction == Reduction::kMean) {
    loss /= op.denominator ? At(*op.denominator, 0) : D;
    if (none_counts && op.zero_if_empty) loss = 0;
  }
  AppendRounded(want.loss, op.loss.dtype, loss);
  return want;
}

Bits Promise(const NllLossBackward& op) {
  return ForDType(LossTypesHere{}, op.out.dtype, [&]<class T>() { return PromiseAs<AccumulatorOf<T>, T>(op); });
}

NllDefinition DefineLoss(const NllLoss& op) {
  NllDefinition want;
  Sum loss, weight;
  bool none_counts = true;
  for (const Term& term : Terms(op)) {
    if (op.reduction == Reduction::kNone) {
      want.value.push_back(term.loss);
      want.bound.push_back(2 * 0x1p-53L * std::abs(term.loss));
    }
    if (!term.counts) continue;
    none_counts = false;
    loss.Add(term.loss), weight.Add(term.weight);
  }
  if (op.reduction == Reduction::kNone) return want;
  long double value = loss.value, bound = loss.bound();
  if (op.reduction == Reduction::kMean) {
    const long double D = op.denominator ? At(*op.denominator, 0) : weight.value;
    const long double off = op.denominator ? 0 : weight.bound();
    // |(a + da) / (D + dD) - a / D| <= (da + |a / D| dD) / (|D| - dD); nothing can be said where that is not positive.
    value /= D;
    const long double least = std::abs(D) - off;
    bound = least > 0 ? (bound + std::abs(value) * off) / least * (1 + 0x1p-50L) + 0x1p-53L * std::abs(value)
                      : std::numeric_limits<long double>::infinity();
    if (none_counts && op.zero_if_empty) value = bound = 0;
  }
  want.value.push_back(value), want.bound.push_back(bound);
  return want;
}

NllDefinition DefineTotalWeight(const NllLoss& op) {
  Sum weight;
  for (const Term& term : Terms(op))
    if (term.counts && op.reduction != Reduction::kNone) weight.Add(term.weight);
  return {{weight.value}, {weight.bound()}};
}

NllDefinition Define(const NllLossBackward& op) {
  const auto count = static_cast<std::size_t>(op.out.numel());
  NllDefinition want{std::vector<long double>(count), std::vector<long double>(count)};
  if (op.accumulate)
    for (std::size_t k = 0; k < count; ++k) want.value[k] = At(op.out, static_cast<std::int64_t>(k));
  std::optional<Places> place;
  if (!op.compact) place.emplace(op.out, op.ClassAxis());
  const long double eps = op.out.dtype == DType::kF64 ? 0x1p-52L : 0x1p-23L;
  // Half the smallest number of f32: products may be that small. No case comes near it in f64.
  const long double least = op.out.dtype == DType::kF64 ? 0 : 0x1p-150L;
  for (std::int64_t i = 0; i < op.target.numel(); ++i) {
    const std::int64_t y = TargetAt(op.target, i);
    if (y == op.ignore_index) continue;
    const bool none = op.reduction == Reduction::kNone;
    long double value = -static_cast<long double>(FactorAt(op.weight, y)) * FactorAt(op.token_weight, i) *
                        At(op.grad_output, none ? i : 0);
    if (op.reduction == Reduction::kMean) value /= At(*op.total_weight, 0);
    const auto k = static_cast<std::size_t>(op.compact ? i : (*place)(i, y));
    want.value[k] = op.accumulate ? want.value[k] + value : value;
    want.bound[k] = 3.01L * eps * std::abs(value) + least;
    if (op.accumulate) want.bound[k] += eps / 2 * (std::abs(want.value[k]) + want.bound[k]);
  }
  return want;
}

::testing::AssertionResult WithinBounds(const Bits& got, DType dtype, const NllDefinition& want) {
  const TensorLayout flat{.dtype = dtype, .rank = 0};
  if (got.size() != want.value.size() * static_cast<std::size_t>(SizeOf(dtype)))
    return ::testing::AssertionFailure() << "sizes differ";
  std::size_t outside = 0, worst = 0;
  long double worst_ratio = 0;
  for (std::size_t k = 0; k < want.value.size(); ++k) {
    const double x = ValueAt(flat, got.data(), static_cast<std::int64_t>(k));
    const long double value = want.value[k], bound = want.bound[k];
    if (x == value || (std::isnan(x) && std::isnan(value)) || std::isinf(bound)) continue;
    const long double allowed = bound + HalfUnitInLastPlace(dtype, std::abs(value) + bound);
    const long double error = std::abs(x - value);
    if (error <= allowed) continue;
    // Rounding overflows half a unit above the largest number, where HalfUnitInLastPlace knows no limit.
    const double largest = dtype == DType::kF16 ? 65504 : dtype == DType::kBF16 ? 0x1.FEp127 : 0x1.FFFFFEp127;
    if (dtype != DType::kF64 && std::isinf(x) && (x > 0) == (value > 0) && std::abs(value) + bound > largest) continue;
    const long double ratio = std::isnan(x) || std::isnan(value) ? HUGE_VALL : error / allowed;
    if (outside++ == 0 || ratio > worst_ratio) worst_ratio = ratio, worst = k;
  }
  if (outside == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "worst at position " << worst << ": got "
                                       << ValueAt(flat, got.data(), static_cast<std::int64_t>(worst)) << ", want "
                                       << want.value[worst] << ", bound " << want.bound[worst] << ", " << worst_ratio
                                       << " times what is allowed; " << outside << " of " << want.value.size()
                                       << " outside";
}

}  // namespace onehot::test
