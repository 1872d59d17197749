#include "tests/native/losses.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/native/strides.h"

namespace onehot::test {
namespace {

// Bits after the point of the mantissa, and an exponent of ones.
struct Format {
  int fraction;
  std::uint64_t exponent;
};
Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {52, 0x7FF};
    case DType::kF32:
      return {23, 0xFF};
    case DType::kBF16:
      return {7, 0xFF};
    default:
      return {10, 0x1F};
  }
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool IsQuietNaN(DType dtype, const std::byte* element) {
  if (!IsFloating(dtype)) return false;
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<std::size_t>(SizeOf(dtype)));  // little-endian: the low bytes
  const Format format = FormatOf(dtype);
  const std::uint64_t quiet = (format.exponent << 1 | 1) << (format.fraction - 1);
  return (bits & quiet) == quiet;
}

std::string Coordinates(const TensorLayout& layout, std::int64_t position) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(layout.rank));
  for (std::size_t axis = at.size(); axis-- > 0;) {
    at[axis] = position % layout.dims[axis];
    position /= layout.dims[axis];
  }
  std::string text = "[";
  for (std::size_t axis = 0; axis < at.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(at[axis]);
  return text + "]";
}

}  // namespace

std::string_view Name(Reduction reduction) {
  return reduction == Reduction::kNone ? "none" : reduction == Reduction::kMean ? "mean" : "sum";
}

bool Holds(DType dtype, std::int64_t value) {
  if (dtype == DType::kU8) return value >= 0 && value <= 255;
  if (dtype == DType::kI64) return true;
  const std::int64_t limit = std::int64_t{1} << (8 * SizeOf(dtype) - 1);
  return value >= -limit && value < limit;
}

std::int64_t ClassesNamed(DType dtype, std::int64_t C) {
  if (dtype == DType::kI64) return C;
  const std::int64_t most = dtype == DType::kU8 ? 256 : std::int64_t{1} << (8 * SizeOf(dtype) - 1);
  return std::min(C, most);
}

std::vector<std::int64_t> BlockyTargets(std::int64_t N, std::int64_t C, std::uint64_t seed) {
  Random random(seed);
  const std::vector<std::int64_t> classes = Indices(Spread::kZipf, N, C, seed + 1);
  std::vector<std::int64_t> targets;
  targets.reserve(static_cast<std::size_t>(N));
  for (std::size_t run = 0; targets.size() < static_cast<std::size_t>(N); ++run) {
    const auto left = N - static_cast<std::int64_t>(targets.size());
    targets.insert(targets.end(), static_cast<std::size_t>(std::min(left, 1 + random.Below(60))), classes[run]);
  }
  return targets;
}

void Ignore(std::vector<std::int64_t>& targets, std::int64_t ignore_index, double share, std::uint64_t seed) {
  Random random(seed);
  // Small problems keep most of their positions.
  const std::int64_t longest = std::min<std::int64_t>(40, 1 + static_cast<std::int64_t>(targets.size()) / 8);
  std::size_t i = 0;
  while (i < targets.size()) {
    const bool ignored = random.Unit() < share;
    const std::int64_t length = random.Below(3) == 0 ? 1 + random.Below(longest) : 1;
    for (std::int64_t k = 0; k < length && i < targets.size(); ++k, ++i)
      if (ignored) targets[i] = ignore_index;
  }
}

void FillTargets(Tensor& target, std::int64_t C, const TargetsLike& like, std::uint64_t seed) {
  const std::int64_t named = ClassesNamed(target.layout().dtype, C);
  std::vector<std::int64_t> targets =
      like.blocky ? BlockyTargets(target.numel(), named, seed) : Indices(like.spread, target.numel(), named, seed);
  if (Holds(target.layout().dtype, like.ignore_index))
    Ignore(targets, like.ignore_index, C == 0 ? 1 : like.ignored, seed + 2);
  SetIndices(target, targets);
}

Dims WithoutClasses(const Dims& dims, int class_axis) {
  Dims rest = dims;
  rest.erase(rest.begin() + (dims.size() == 1 ? 0
                             : class_axis < 0 ? class_axis + static_cast<int>(dims.size())
                                              : class_axis));
  return rest;
}

std::vector<Dims> AllPermutedStrides(const Dims& dims, std::int64_t gap) {
  std::vector<std::size_t> order(dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<Dims> all;
  do {
    all.push_back(PermutedStrides(dims, order, gap));
  } while (std::ranges::next_permutation(order).found);
  return all;
}

Dims Reversed(Dims strides, unsigned axes) {
  for (std::size_t axis = 0; axis < strides.size(); ++axis)
    if ((axes >> axis & 1u) != 0) strides[axis] = -strides[axis];
  return strides;
}

::testing::AssertionResult SameBits(const Tensor& got, const std::vector<std::byte>& want) {
  const std::vector<std::byte> bytes = got.Bytes();
  if (bytes.size() != want.size()) return ::testing::AssertionFailure() << "sizes differ";
  if (bytes == want) return ::testing::AssertionSuccess();
  const DType dtype = got.layout().dtype;
  const auto size = static_cast<std::size_t>(SizeOf(dtype));
  std::size_t wrong = 0, first = 0;
  for (std::size_t e = 0; e < bytes.size() / size; ++e) {
    const std::byte *a = bytes.data() + e * size, *b = want.data() + e * size;
    if (std::memcmp(a, b, size) == 0) continue;
    if (IsQuietNaN(dtype, a) && IsQuietNaN(dtype, b)) continue;
    if (wrong++ == 0) first = e;
  }
  if (wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << Coordinates(got.layout(), static_cast<std::int64_t>(first)) << " (position "
                                       << first << ") is " << ShowElement(dtype, bytes.data() + first * size)
                                       << ", promised is " << ShowElement(dtype, want.data() + first * size) << "; "
                                       << wrong << " of " << bytes.size() / size << " differ";
}

void FillSignalling(Tensor& tensor) {
  // Sign, an exponent of ones, the quiet bit clear, a payload that is not zero.
  const DType dtype = tensor.layout().dtype;
  const Format format = FormatOf(dtype);
  const std::uint64_t payloads = (std::uint64_t{1} << (format.fraction - 1)) - 1;
  const int sign = static_cast<int>(SizeOf(dtype)) * 8 - 1;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const auto k = static_cast<std::uint64_t>(i);
    const std::uint64_t bits = (k % 3 == 0 ? std::uint64_t{1} << sign : 0) | format.exponent << format.fraction |
                               (1 + k * 0x9E3779B97F4A7C15u % payloads);
    tensor.SetBytes(i, &bits);  // little-endian: the low bytes
  }
}

}  // namespace onehot::test
