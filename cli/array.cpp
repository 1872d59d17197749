#include "cli/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cli/failure.h"
#include "cli/progress.h"
#include "cli/signals.h"

namespace onehot::cli {
namespace {

// Bytes between two looks at whether a signal came: a few milliseconds of copying.
constexpr std::int64_t kBlock = std::int64_t{8} << 20;

DType ElementDType(std::string_view argument, const std::string& path, const NpyElement& element,
                   const InputOptions& options) {
  if (element.kind == 'V') {
    if (options.void_is_bf16 || options.use == Use::kBits) return DType::kBF16;
    throw Failure(Exit::kUsage,
                  fmt::format("{}: {} holds two-byte void elements; --dtype bf16 reads them as bf16", argument, path));
  }
  if (const auto dtype = DTypeOf(element)) return *dtype;
  // What is left is unsigned, of 2, 4 or 8 bytes.
  if (options.use == Use::kBits) return element.size == 2 ? DType::kI16 : element.size == 4 ? DType::kI32 : DType::kI64;
  if (options.use == Use::kIndices) return element.size == 2 ? DType::kI32 : DType::kI64;
  throw Failure(Exit::kData, fmt::format("{}: dtype {} is not supported ({})", argument, element.name(), path));
}

std::uint8_t Swap(std::uint8_t bits) {
  return bits;
}
std::uint16_t Swap(std::uint16_t bits) {
  return __builtin_bswap16(bits);
}
std::uint32_t Swap(std::uint32_t bits) {
  return __builtin_bswap32(bits);
}
std::uint64_t Swap(std::uint64_t bits) {
  return __builtin_bswap64(bits);
}

// Addresses may be unaligned.
template <class From, class To>
void ConvertAs(const std::byte* from, std::byte* to, std::int64_t count, bool swapped) {
  constexpr std::int64_t kStep = kBlock / static_cast<std::int64_t>(sizeof(From));
  for (std::int64_t begin = 0; begin < count; begin += kStep) {
    ThrowIfInterrupted();
    for (std::int64_t i = begin; i < std::min(count, begin + kStep); ++i) {
      From bits;
      std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof bits);
      const To value = swapped ? Swap(bits) : bits;
      std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &value, sizeof value);
    }
  }
}

// To elements of `size` bytes, which zero-extends.
void Convert(const std::byte* from, std::byte* to, std::int64_t count, const NpyElement& element, std::int64_t size) {
  const bool swapped = element.swapped;
  // Each half of a complex number has its own byte order.
  const std::int64_t parts = element.kind == 'c' ? 2 : 1, part = element.size / parts;
  count *= parts;
  if (element.size != size) {
    if (part == 2) return ConvertAs<std::uint16_t, std::uint32_t>(from, to, count, swapped);
    return ConvertAs<std::uint32_t, std::uint64_t>(from, to, count, swapped);
  }
  if (part == 1) return ConvertAs<std::uint8_t, std::uint8_t>(from, to, count, swapped);
  if (part == 2) return ConvertAs<std::uint16_t, std::uint16_t>(from, to, count, swapped);
  if (part == 4) return ConvertAs<std::uint32_t, std::uint32_t>(from, to, count, swapped);
  return ConvertAs<std::uint64_t, std::uint64_t>(from, to, count, swapped);
}

}  // namespace

TensorLayout LayoutOf(std::string_view argument, DType dtype, bool fortran_order,
                      const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMaxRank)
    throw Failure(Exit::kData, fmt::format("{}: rank must be at most {}, is {}", argument, kMaxRank, shape.size()));
  TensorLayout layout = TensorLayout::Contiguous(dtype, shape);
  if (fortran_order) {
    std::int64_t stride = 1;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      layout.strides[axis] = stride;
      stride *= shape[axis];
    }
  }
  return layout;
}

InputArray::InputArray(std::string_view argument, const std::string& path, const InputOptions& options)
    : argument_(argument),
      file_(path),
      header_(ParseNpy(file_.bytes(), path)),
      layout_only_(options.use == Use::kLayout) {
  const NpyElement& element = header_.element;
  const DType dtype = ElementDType(argument, path, element, options);
  const TensorLayout layout = LayoutOf(argument, dtype, header_.fortran_order, header_.shape);
  const std::byte* data = file_.bytes().data() + header_.data_offset;
  // Complex numbers are aligned as their parts are.
  const std::int64_t alignment = std::min<std::int64_t>(element.size, 8);
  const bool in_place =
      !element.swapped && SizeOf(dtype) == element.size && reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
  if (!in_place && !layout_only_ && header_.numel() > 0) {
    converted_ = Mapping::Anonymous(static_cast<std::size_t>(header_.numel() * SizeOf(dtype)), file_.path());
    Convert(data, converted_.data(), header_.numel(), element, SizeOf(dtype));
    data = converted_.data();
  }
  view_ = ConstTensorView(data, layout);
}

std::string InputArray::Describe() const {
  return fmt::format("{}: {} {}, {}", file_.path(), is_void() ? std::string(Name(view_.dtype)) : header_.element.name(),
                     DescribeShape(header_.shape),
                     layout_only_  ? "not read"
                     : converted() ? "converted"
                                   : "mapped");
}

void InputArray::ThrowIfTooLarge(std::int64_t rows, std::optional<std::int64_t> ignored) const {
  if (header_.element.kind != 'u' || header_.element.size != 8) return;
  const auto* values = static_cast<const std::uint64_t*>(view_.data);
  const std::int64_t count = view_.numel();
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (std::none_of(values, values + count, [](std::uint64_t value) { return value > kMax; })) return;
  // Positions count in row-major order, whatever the order of the file.
  const auto rank = static_cast<std::size_t>(view_.rank);
  std::vector<std::int64_t> at(rank);
  for (std::int64_t position = 0; position < count; ++position) {
    std::int64_t rest = position, offset = 0;
    for (std::size_t axis = rank; axis-- > 0;) {
      at[axis] = rest % view_.dims[axis];
      rest /= view_.dims[axis];
      offset += at[axis] * view_.strides[axis];
    }
    if (values[offset] < static_cast<std::uint64_t>(rows)) continue;
    if (ignored && *ignored >= 0 && values[offset] == static_cast<std::uint64_t>(*ignored)) continue;
    const std::string where =
        rank <= 1 ? fmt::format("[{}]", position) : fmt::format("[{}] (position {})", fmt::join(at, ", "), position);
    throw Failure(Exit::kData, fmt::format("{}{} = {} is outside [0, {})", argument_, where, values[offset], rows));
  }
}

void InputArray::ReadAhead() const {
  if (!converted()) file_.ReadAhead();
}

const InputArray& InputArrays::Read(std::string_view argument, const std::string& path, Use use) {
  return arrays_.emplace_back(argument, path, InputOptions{use, void_is_bf16_});
}

const InputArray* InputArrays::ReadIfGiven(std::string_view argument, const std::string& path, Use use) {
  return path.empty() ? nullptr : &Read(argument, path, use);
}

std::optional<ConstTensorView> InputArrays::ViewIfGiven(std::string_view argument, const std::string& path) {
  if (path.empty()) return std::nullopt;
  return Read(argument, path).view();
}

void InputArrays::ThrowIfNoneIsVoid() const {
  if (void_is_bf16_ && std::none_of(arrays_.begin(), arrays_.end(), [](const auto& array) { return array.is_void(); }))
    throw Failure(Exit::kUsage, "--dtype: no file here has two-byte void elements");
}

std::vector<std::pair<std::string, std::string>> InputArrays::Describe() const {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const InputArray& array : arrays_) lines.emplace_back(array.argument(), array.Describe());
  return lines;
}

namespace {

std::size_t FileSize(std::size_t preamble, const std::string& path, const NpyElement& element,
                     const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = element.size;
  bool too_large = false;
  for (const std::int64_t extent : shape) too_large |= __builtin_mul_overflow(bytes, extent, &bytes);
  too_large |= __builtin_add_overflow(bytes, static_cast<std::int64_t>(preamble), &bytes);
  if (too_large)
    throw Failure(Exit::kData,
                  fmt::format("{}: {} {} is more than a file can hold", path, element.name(), DescribeShape(shape)));
  return static_cast<std::size_t>(bytes);
}

}  // namespace

OutputArray::OutputArray(const std::string& path, const NpyElement& element, bool fortran_order,
                         const std::vector<std::int64_t>& shape)
    : offset_(NpyPreamble(element, fortran_order, shape).size()), file_(path, FileSize(offset_, path, element, shape)) {
  const std::string preamble = NpyPreamble(element, fortran_order, shape);
  std::memcpy(file_.bytes().data(), preamble.data(), preamble.size());
}

void OutputArrays::Create(std::string_view argument, const std::string& path, TensorView& view, bool fortran_order) {
  const std::vector<std::int64_t> shape(view.dims.begin(), view.dims.begin() + view.rank);
  view.data = arrays_.emplace_back(path, ElementOf(view.dtype), fortran_order, shape).data();
  lines_.emplace_back(argument, fmt::format("{}: {} {}", path, Name(view.dtype), DescribeShape(shape)));
}

void OutputArrays::Publish() {
  for (OutputArray& array : arrays_) array.file().Sync();
  for (OutputArray& array : arrays_) array.file().Publish();
}

void OptionalOutputs::Add(std::string_view option, const std::string& path, std::optional<TensorView>& view,
                          const TensorView& layout, bool fortran_order) {
  options_.emplace_back(option);
  if (path.empty()) return;
  for (const Given& other : given_) ThrowIfSameFile({{other.option, other.path}, {option, path}});
  given_.push_back({std::string(option), path, view.emplace(layout), fortran_order});
}

void OptionalOutputs::ThrowIfNone() const {
  if (!given_.empty()) return;
  throw Failure(Exit::kUsage, fmt::format("an output is required: {} or {}",
                                          fmt::join(options_.begin(), options_.end() - 1, ", "), options_.back()));
}

void OptionalOutputs::Create(OutputArrays& arrays) const {
  for (const Given& output : given_) {
    std::string argument = output.option.substr(2);  // "--grad-input" is grad_input
    std::replace(argument.begin(), argument.end(), '-', '_');
    arrays.Create(argument, output.path, output.view, output.fortran_order);
  }
}

void ThrowIfSameFile(std::initializer_list<std::pair<std::string_view, const std::string&>> outputs) {
  for (const auto* a = outputs.begin(); a != outputs.end(); ++a)
    for (const auto* b = outputs.begin(); b != a; ++b)
      if (!a->second.empty() && !b->second.empty() && SameFile(a->second, b->second))
        throw Failure(Exit::kUsage, fmt::format("{} and {}: both name {}", b->first, a->first, a->second));
}

void CopyBytes(void* to, const void* from, std::int64_t bytes, const std::string& label) {
  Progress progress(label);
  for (std::int64_t begin = 0; begin < bytes; begin += kBlock) {
    ThrowIfInterrupted();
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<std::size_t>(std::min(kBlock, bytes - begin)));
    progress.Update(begin, bytes);
  }
}

}  // namespace onehot::cli
