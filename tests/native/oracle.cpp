#include "tests/native/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/dtype.h"

namespace onehot::test {
namespace {

using GradTypes = Types<float, double, F16, BF16>;

std::int64_t PaddingRowOf(const EmbeddingBackward& op) {
  if (!op.padding_idx) return -1;
  return *op.padding_idx < 0 ? op.out.dims[0] + *op.padding_idx : *op.padding_idx;
}

// Offset of grad[i, 0], its leading axes flattened.
std::int64_t GradRow(const ConstTensorView& grad, std::int64_t i) {
  TensorLayout leading = grad;
  --leading.rank;
  return OffsetOf(leading, i);
}

// For every row the positions that name it, ascending.
struct Occurrences {
  std::vector<std::int64_t> begin, position;

  Occurrences(const std::vector<std::int64_t>& rows, std::int64_t V)
      : begin(static_cast<std::size_t>(V) + 1), position(rows.size()) {
    for (const std::int64_t v : rows) ++begin[static_cast<std::size_t>(v) + 1];
    for (std::size_t v = 0; v < static_cast<std::size_t>(V); ++v) begin[v + 1] += begin[v];
    std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
    for (std::size_t i = 0; i < rows.size(); ++i)
      position[static_cast<std::size_t>(next[static_cast<std::size_t>(rows[i])]++)] = static_cast<std::int64_t>(i);
  }
};

template <class G, class O>
void PromiseRow(const EmbeddingBackward& op, std::int64_t v, const std::int64_t* positions, std::int64_t count,
                O* out) {
  using A = AccumulatorOf<G>;
  const std::int64_t D = op.out.dims[1], step = op.grad.stride(-1);
  const auto* grad = static_cast<const G*>(op.grad.data);
  std::vector<A> chunk(static_cast<std::size_t>(D)), total(static_cast<std::size_t>(D));
  const std::size_t width = static_cast<std::size_t>(D);
  for (std::int64_t k = 0; k < count; ++k) {
    const G* row = grad + GradRow(op.grad, positions[k]);
    for (std::size_t c = 0; c < width; ++c) {
      const A x = Widen(row[static_cast<std::int64_t>(c) * step]);
      chunk[c] = k % 512 == 0 ? x : chunk[c] + x;
    }
    if (k % 512 == 511 || k + 1 == count) {
      for (std::size_t c = 0; c < width; ++c) total[c] = k < 512 ? chunk[c] : total[c] + chunk[c];
    }
  }
  const auto* old = static_cast<const O*>(op.out.data) + v * op.out.strides[0];
  for (std::size_t c = 0; c < width; ++c) {
    A value = total[c];
    if (op.scale_grad_by_freq && count > 1) value /= static_cast<A>(count);
    if (op.accumulate) value = static_cast<A>(Widen(old[static_cast<std::int64_t>(c) * op.out.strides[1]])) + value;
    if (count == 1 && !op.accumulate) {
      // Not by way of `total`: a compiler may turn "x or sum + x" into "x plus sum or -0", which quiets a NaN.
      const G only = grad[GradRow(op.grad, positions[0]) + static_cast<std::int64_t>(c) * step];
      if constexpr (std::is_same_v<G, O>) {
        out[c] = only;
      } else {
        out[c] = Narrow<O>(Widen(only));
      }
      continue;
    }
    out[c] = Narrow<O>(value);
  }
}

template <class G, class O>
PromisedBits PromiseAs(const EmbeddingBackward& op) {
  const std::int64_t V = op.out.dims[0], D = op.out.dims[1], padding = PaddingRowOf(op);
  const Occurrences occurrences(RowsNamed(op.indices), V);
  PromisedBits want;
  std::vector<O> out(static_cast<std::size_t>(V * D), O{});
  for (std::int64_t v = 0; v < V; ++v) {
    const std::int64_t begin = occurrences.begin[static_cast<std::size_t>(v)];
    const std::int64_t count = occurrences.begin[static_cast<std::size_t>(v) + 1] - begin;
    want.count.push_back(count);
    want.summed.push_back(count > 0 && v != padding && (count > 1 || op.accumulate));
    O* row = out.data() + v * D;
    if (count > 0 && v != padding) {
      PromiseRow<G, O>(op, v, occurrences.position.data() + begin, count, row);
    } else if (op.accumulate) {
      const auto* old = static_cast<const O*>(op.out.data) + v * op.out.strides[0];
      for (std::int64_t c = 0; c < D; ++c) row[c] = old[c * op.out.strides[1]];
    }
  }
  want.out.resize(out.size() * sizeof(O));
  if (!out.empty()) std::memcpy(want.out.data(), out.data(), want.out.size());
  return want;
}

template <class T>
bool SameElement(T a, T b, bool open) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (open && std::isnan(Widen(a)) && std::isnan(Widen(b)));
}

}  // namespace

std::vector<std::int64_t> RowsNamed(const ConstTensorView& indices) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(indices.numel()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t offset = OffsetOf(indices, static_cast<std::int64_t>(i));
    rows[i] = static_cast<std::int64_t>(std::trunc(ValueAt(indices, indices.data, offset)));
  }
  return rows;
}

Definition Define(const EmbeddingBackward& op) {
  const std::int64_t V = op.out.dims[0], D = op.out.dims[1], padding = PaddingRowOf(op);
  const auto at = [&](std::int64_t v, std::int64_t c) { return static_cast<std::size_t>(v * D + c); };
  Definition want;
  want.value.assign(static_cast<std::size_t>(V * D), 0);
  want.magnitude.assign(static_cast<std::size_t>(V * D), 0);
  want.count.assign(static_cast<std::size_t>(V), 0);
  const std::vector<std::int64_t> rows = RowsNamed(op.indices);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t v = rows[i], row = GradRow(op.grad, static_cast<std::int64_t>(i));
    ++want.count[static_cast<std::size_t>(v)];
    for (std::int64_t c = 0; c < D; ++c) {
      const double x = ValueAt(op.grad, op.grad.data, row + c * op.grad.stride(-1));
      want.value[at(v, c)] += x;
      want.magnitude[at(v, c)] += std::abs(x);
    }
  }
  for (std::int64_t v = 0; v < V; ++v) {
    const std::int64_t count = want.count[static_cast<std::size_t>(v)];
    for (std::int64_t c = 0; c < D; ++c) {
      long double &value = want.value[at(v, c)], &magnitude = want.magnitude[at(v, c)];
      if (count == 0 || v == padding) value = magnitude = 0;
      if (op.scale_grad_by_freq && count > 0) value /= count, magnitude /= count;
      if (op.accumulate) {
        const double old = ValueAt(op.out, op.out.data, v * op.out.strides[0] + c * op.out.strides[1]);
        value += old, magnitude += std::abs(old);
      }
    }
  }
  return want;
}

PromisedBits Promise(const EmbeddingBackward& op) {
  return ForDType(GradTypes{}, op.grad.dtype, [&]<class G>() {
    return op.out.dtype == op.grad.dtype ? PromiseAs<G, G>(op) : PromiseAs<G, float>(op);
  });
}

::testing::AssertionResult HasBits(const Tensor& out, const PromisedBits& want) {
  const std::vector<std::byte> got = out.Bytes();
  if (got.size() != want.out.size()) return ::testing::AssertionFailure() << "sizes differ";
  if (got == want.out) return ::testing::AssertionSuccess();
  const DType dtype = out.layout().dtype;
  const auto D = static_cast<std::size_t>(out.layout().dims[1]), size = static_cast<std::size_t>(SizeOf(dtype));
  std::size_t wrong = 0, first = 0;
  ForDType(GradTypes{}, dtype, [&]<class T>() {
    for (std::size_t e = 0; e < got.size() / size; ++e) {
      T a, b;
      std::memcpy(&a, got.data() + e * size, size);
      std::memcpy(&b, want.out.data() + e * size, size);
      if (SameElement(a, b, want.summed[e / D])) continue;
      if (wrong++ == 0) first = e;
    }
  });
  if (wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "out[" << first / D << ", " << first % D << "] is "
                                       << ShowElement(dtype, got.data() + first * size) << ", promised is "
                                       << ShowElement(dtype, want.out.data() + first * size) << ", count "
                                       << want.count[first / D] << "; " << wrong << " of " << got.size() / size
                                       << " differ";
}

long double HalfUnitInLastPlace(DType dtype, long double x) {
  // Bits after the point of the mantissa, and the exponent of the smallest normal.
  struct Format {
    int fraction, lowest;
  };
  const Format format = dtype == DType::kF64    ? Format{52, -1022}
                        : dtype == DType::kF32  ? Format{23, -126}
                        : dtype == DType::kBF16 ? Format{7, -126}
                                                : Format{10, -14};
  const int exponent = x == 0 ? format.lowest : std::max(std::ilogb(x), format.lowest);
  return std::ldexp(0.5L, exponent - format.fraction);
}

::testing::AssertionResult WithinRounding(const std::vector<std::byte>& out, DType dtype, const Definition& want,
                                          double eps) {
  const TensorLayout flat{.dtype = dtype, .rank = 0};
  if (want.count.empty() || want.value.empty()) return ::testing::AssertionSuccess();
  const std::size_t D = want.value.size() / want.count.size();
  std::size_t outside = 0, worst = 0;
  long double worst_ratio = 1;
  for (std::size_t e = 0; e < want.value.size(); ++e) {
    const double got = ValueAt(flat, out.data(), static_cast<std::int64_t>(e));
    const auto terms = static_cast<long double>(want.count[e / D] + 2);
    const long double sum = terms * (eps / 2) * want.magnitude[e];
    // The rounding to out starts from the sum in the accumulation type, not from the exact one.
    const long double bound = sum + HalfUnitInLastPlace(dtype, std::abs(want.value[e]) + sum);
    const long double error = std::abs(got - want.value[e]);
    if (error <= bound || (std::isnan(got) && std::isnan(want.value[e])) || got == want.value[e]) continue;
    ++outside;
    const long double ratio = std::isnan(got) ? HUGE_VALL : error / bound;
    if (ratio > worst_ratio) worst_ratio = ratio, worst = e;
  }
  if (outside == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "worst at out[" << worst / D << ", " << worst % D << "]: got "
                                       << ValueAt(flat, out.data(), static_cast<std::int64_t>(worst)) << ", want "
                                       << want.value[worst] << ", " << worst_ratio << " times the bound; " << outside
                                       << " of " << want.value.size() << " outside";
}

::testing::AssertionResult WithinRounding(const Tensor& out, const Definition& want, double eps) {
  return WithinRounding(out.Bytes(), out.layout().dtype, want, eps);
}

}  // namespace onehot::test
