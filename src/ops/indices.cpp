#include "ops/indices.h"

#include <fmt/format.h>

#include "core/layout.h"

namespace onehot {

Status CheckIndexDType(std::string_view argument, DType dtype) {
  if (IndexTypes::Contains(dtype)) return Status::Ok();
  return Status::Error(
      Code::kBadDType,
      fmt::format("{}: dtype must be one of i64, i32, i16, i8, u8, bool, f64, f32, f16, is {}", argument, Name(dtype)));
}

Status BadIndex(std::string_view argument, const ConstTensorView& indices, std::int64_t position, std::int64_t rows) {
  const std::int64_t offset = Flatten(indices, indices.rank).Offset(position);
  const std::string value = ForDType(IndexTypes{}, indices.dtype, [&]<class I>() {
    const I index = static_cast<const I*>(indices.data)[offset];
    if constexpr (std::is_same_v<I, Bool>) {
      return std::string(index.byte != 0 ? "1" : "0");
    } else if constexpr (std::is_integral_v<I>) {
      return fmt::format("{}", static_cast<std::int64_t>(index));
    } else {
      return fmt::format("{}", Widen(index));
    }
  });
  return Status::Error(Code::kBadData, fmt::format("{} = {} is outside [0, {})",
                                                   DescribePosition(argument, indices, position), value, rows));
}

}  // namespace onehot
