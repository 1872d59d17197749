#include "cli/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "cli/failure.h"

namespace onehot::cli {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kAlign = 64;    // of the data in files that are written, for vector loads from mapped files
constexpr std::size_t kMaxRank = 64;  // NumPy's limit

// Text of a file as an error may show it: one printable line of bounded length.
std::string Shown(std::string_view text) {
  constexpr std::size_t kMax = 40;
  std::string shown(text.substr(0, kMax));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kMax ? shown + "..." : shown;
}

// Reads the one kind of Python literal that a header may be:
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// Keys in any order, either quote, whitespace anywhere, and the L that Python 2 put behind long integers.
class DictParser {
 public:
  DictParser(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  NpyHeader Parse() {
    Expect('{');
    while (!Accept('}')) {
      const std::string_view key = String();
      Expect(':');
      if (key == "descr") {
        Once(has_descr_, key);
        header_.element = Descr();
      } else if (key == "fortran_order") {
        Once(has_order_, key);
        header_.fortran_order = Bool();
      } else if (key == "shape") {
        Once(has_shape_, key);
        header_.shape = Shape();
      } else {
        Fail(fmt::format("unknown key '{}'", Shown(key)));
      }
      if (!Accept(',') && !Peek('}')) Fail("expected ',' or '}'");
    }
    SkipSpace();
    if (at_ != text_.size()) Fail("something follows the dict");
    for (const auto& [has, key] :
         {std::pair{has_descr_, "descr"}, {has_order_, "fortran_order"}, {has_shape_, "shape"}})
      if (!has) Fail(fmt::format("'{}' is missing", key));
    return std::move(header_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Failure(Exit::kFile, fmt::format("{}: bad header: {} (at byte {})", path_, what, at_));
  }
  [[noreturn]] void FailType(std::string_view what) const {
    throw Failure(Exit::kFile, fmt::format("{}: {} are not supported", path_, what));
  }
  void Once(bool& seen, std::string_view key) const {
    if (seen) Fail(fmt::format("'{}' is there twice", key));
    seen = true;
  }

  void SkipSpace() {
    while (at_ < text_.size() && std::string_view(" \t\n\r\f").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool Peek(char c) {
    SkipSpace();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool Accept(char c) {
    if (!Peek(c)) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Accept(c)) Fail(fmt::format("expected '{}'", c));
  }

  // No escapes: nothing that a header of ours may hold needs one.
  std::string_view String() {
    const char quote = Peek('"') ? '"' : '\'';
    Expect(quote);
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' || text_[at_] == '\n') Fail("a string holds an escape or a line break");
      ++at_;
    }
    if (at_ == text_.size()) Fail("a string does not end");
    return text_.substr(begin, at_++ - begin);
  }

  bool Bool() {
    SkipSpace();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    Fail("expected True or False");
  }

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }

  std::int64_t Extent() {
    SkipSpace();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && IsDigit(text_[at_]); ++at_)
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        Fail("an extent does not fit 63 bits");
    if (at_ == begin) Fail("expected an extent");
    if (text_[begin] == '0' && at_ - begin > 1) Fail("an extent starts with 0");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return value;
  }

  std::vector<std::int64_t> Shape() {
    std::vector<std::int64_t> shape;
    Expect('(');
    while (!Accept(')')) {
      if (shape.size() == kMaxRank) Fail(fmt::format("more than {} axes", kMaxRank));
      shape.push_back(Extent());
      if (Accept(',')) continue;
      if (!Peek(')')) Fail("expected ',' or ')'");
      // (3) is a number in Python; (3,) is a tuple.
      if (shape.size() == 1) Fail("shape must be a tuple");
    }
    return shape;
  }

  NpyElement Descr() {
    if (Peek('[')) FailType("structured dtypes");
    const std::string_view descr = String();
    std::string_view rest = descr;
    char order = '|';
    if (!rest.empty() && std::string_view("<>|=").find(rest[0]) != std::string_view::npos) {
      order = rest[0];
      rest.remove_prefix(1);
    }
    if (rest.starts_with('O')) FailType("object arrays");
    NpyElement element;
    element.kind = rest.empty() ? '?' : rest[0];
    element.size = 0;
    for (const char c : rest.substr(rest.empty() ? 0 : 1)) {
      // Three digits are beyond every size that is known below.
      if (!IsDigit(c) || element.size > 99) {
        element.size = -1;
        break;
      }
      element.size = element.size * 10 + (c - '0');
    }
    element.swapped = order == (std::endian::native == std::endian::little ? '>' : '<');
    if (element.size == 1) element.swapped = false;
    constexpr std::array<std::string_view, 15> kKnown = {"b1", "i1", "i2", "i4", "i8", "u1",  "u2", "u4",
                                                         "u8", "f2", "f4", "f8", "c8", "c16", "V2"};
    const std::string plain = fmt::format("{}{}", element.kind, element.size);
    if (std::find(kKnown.begin(), kKnown.end(), plain) == kKnown.end())
      FailType(fmt::format("elements of dtype '{}'", Shown(descr)));
    return element;
  }

  const std::string_view text_, path_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

// As if no extent were 0, so that strides fit as well.
bool SizeOverflows(const NpyHeader& header) {
  std::int64_t bytes = header.element.size;
  for (const std::int64_t extent : header.shape)
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) return true;
  return false;
}

}  // namespace

std::string NpyElement::name() const {
  if (kind == 'b') return "bool";
  return fmt::format("{}{}", kind == 'V' ? "void" : std::string(1, kind), 8 * size);
}

std::int64_t NpyHeader::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

NpyHeader ParseNpy(std::span<const std::byte> file, std::string_view path) {
  const auto fail = [path](const std::string& what) { throw Failure(Exit::kFile, fmt::format("{}: {}", path, what)); };
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.empty()) fail("is empty, not a .npy file");
  if (text.starts_with("PK\x03\x04")) fail("is a .npz archive, not a .npy file");
  if (text.substr(0, kMagic.size()) != kMagic.substr(0, text.size()))
    fail("is not a .npy file: it does not start with \\x93NUMPY");
  const auto byte = [text](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(text[at])); };
  if (text.size() < kMagic.size() + 4) fail("is truncated inside the header");

  const std::size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    fail(fmt::format("has version {}.{} of the .npy format; known are 1.0, 2.0 and 3.0", major, minor));
  const std::size_t begin = major == 1 ? 10 : 12;
  if (text.size() < begin) fail("is truncated inside the header");
  const std::size_t length = major == 1 ? byte(8) | byte(9) << 8  //
                                        : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (text.size() - begin < length)
    fail(fmt::format("is truncated: its header has {} bytes, the file only {} after the magic", length,
                     text.size() - begin));

  NpyHeader header = DictParser(text.substr(begin, length), path).Parse();
  header.data_offset = static_cast<std::int64_t>(begin + length);
  if (SizeOverflows(header))
    fail(fmt::format("bad header: shape {} does not fit 63 bits", DescribeShape(header.shape)));
  const auto left = static_cast<std::int64_t>(text.size() - begin - length);
  if (left != header.data_bytes())
    fail(fmt::format("{}: the header promises {} bytes of data ({} {}), the file has {}",
                     left < header.data_bytes() ? "is truncated" : "is too long", header.data_bytes(),
                     header.element.name(), DescribeShape(header.shape), left));
  return header;
}

std::string NpyPreamble(const NpyElement& element, bool fortran_order, std::span<const std::int64_t> shape) {
  const char native = std::endian::native == std::endian::little ? '<' : '>';
  // ml_dtypes gives its two-byte void a byte order; so do we.
  const char order = element.size == 1 ? '|' : native;
  std::string dict =
      fmt::format("{{'descr': '{}{}{}', 'fortran_order': {}, 'shape': ({}{}), }}", order, element.kind, element.size,
                  fortran_order ? "True" : "False", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // 64 axes of 19 digits are far below the 65535 bytes that version 1.0 can hold.
  constexpr std::size_t kFixed = 10;
  const std::size_t unpadded = kFixed + dict.size() + 1;
  dict.append((kAlign - unpadded % kAlign) % kAlign, ' ');
  dict.push_back('\n');
  std::string preamble(kMagic);
  preamble += {'\x01', '\x00', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return preamble + dict;
}

NpyElement ElementOf(DType dtype) {
  const std::int64_t size = SizeOf(dtype);
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
      return {'f', size};
    case DType::kBF16:
      return {'V', size};
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
      return {'i', size};
    case DType::kU8:
      return {'u', size};
    case DType::kBool:
      return {'b', size};
    case DType::kC64:
    case DType::kC128:
      return {'c', size};
  }
  return {'V', size};
}

std::optional<DType> DTypeOf(const NpyElement& element) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kI64, DType::kI32, DType::kI16, DType::kI8,
                            DType::kU8, DType::kBool, DType::kC64, DType::kC128}) {
    const NpyElement known = ElementOf(dtype);
    if (known.kind == element.kind && known.size == element.size) return dtype;
  }
  return std::nullopt;
}

std::string DescribeShape(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace onehot::cli
