// The .npy format: a magic string, a version, and the text of a Python dict that describes the array.
#ifndef ONEHOT_CLI_NPY_H_
#define ONEHOT_CLI_NPY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onehot/tensor.h"

namespace onehot::cli {

// Elements as a header names them. `kind` is NumPy's letter: b bool, i and u integers, f floating, c complex, V void.
struct NpyElement {
  char kind = 'f';
  std::int64_t size = 4;  // bytes
  bool swapped = false;   // stored in the byte order that this machine does not have

  // "f32", "u16", "void16": as the library writes dtypes.
  std::string name() const;
};

struct NpyHeader {
  NpyElement element;
  bool fortran_order = false;  // the first axis is the contiguous one
  std::vector<std::int64_t> shape;
  std::int64_t data_offset = 0;  // from the start of the file

  std::int64_t numel() const;
  std::int64_t data_bytes() const { return numel() * element.size; }
};

// Reads the header of a whole file, versions 1.0 to 3.0, and holds it against the size of the file. No product of
// extents and element size that a caller can form overflows. Throws a Failure that starts with `path`.
NpyHeader ParseNpy(std::span<const std::byte> file, std::string_view path);

// Everything in front of the data, in the oldest version that can hold it, padded to a multiple of 64 bytes as NumPy
// does.
std::string NpyPreamble(const NpyElement& element, bool fortran_order, std::span<const std::int64_t> shape);

// bf16, which NumPy lacks, is what ml_dtypes saves it as: two-byte void.
NpyElement ElementOf(DType dtype);

// None for unsigned integers above one byte, and for void.
std::optional<DType> DTypeOf(const NpyElement& element);

// "[3, 4]"
std::string DescribeShape(std::span<const std::int64_t> shape);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_NPY_H_
