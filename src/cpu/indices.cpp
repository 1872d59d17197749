#include "cpu/indices.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/indices.h"

namespace onehot::cpu {
namespace {

// Dense indices of a type that converts directly: loops without a branch per element, which the compiler vectorises.
// Negative values become huge, so one unsigned comparison checks both ends.
template <class Row, class I>
bool AllInside(const I* index, std::int64_t count, std::int64_t limit, Row* rows) {
  // A limit beyond what I can hold is no limit; clamped, the comparison stays in the width of I.
  using U = std::make_unsigned_t<I>;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<I>::max());
  if (limit <= 0) return count == 0;
  const auto last = static_cast<U>(std::min(static_cast<std::uint64_t>(limit - 1), kMax));
  bool inside = true;
  for (std::int64_t i = 0; i < count; ++i) {
    inside &= static_cast<U>(index[i]) <= last;
    rows[i] = static_cast<Row>(index[i]);
  }
  return inside;
}

}  // namespace

template <class Row>
std::int64_t LoadRows(const ConstTensorView& indices, const Positions& at, std::int64_t limit, std::int64_t begin,
                      std::int64_t end, Row* rows) {
  return ForDType(IndexTypes{}, indices.dtype, [&]<class I>() -> std::int64_t {
    const I* const data = static_cast<const I*>(indices.data);
    if constexpr (std::is_integral_v<I>) {
      if (at.uniform() && at.stride() == 1 && AllInside(data + begin, end - begin, limit, rows)) return -1;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = RowOf(data[at.Offset(i)]);
      if (row < 0 || row >= limit) return i;
      rows[i - begin] = static_cast<Row>(row);
    }
    return -1;
  });
}

template std::int64_t LoadRows(const ConstTensorView&, const Positions&, std::int64_t, std::int64_t, std::int64_t,
                               std::uint32_t*);
template std::int64_t LoadRows(const ConstTensorView&, const Positions&, std::int64_t, std::int64_t, std::int64_t,
                               std::uint64_t*);

}  // namespace onehot::cpu
