#include "cpu/targets_simd.h"

#include <algorithm>
#include <type_traits>

#include "ops/losses.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/targets_simd.cpp"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {

// Without a branch per element, and in the width of I, so that the compiler vectorises it for each instruction set.
template <class I, class K>
bool ReadDense(const I* HWY_RESTRICT target, std::int64_t count, std::int64_t C, std::int64_t ignore_index,
               K* HWY_RESTRICT classes) {
  using U = std::make_unsigned_t<I>;
  // A limit beyond what I can hold is no limit, and so is an ignore_index.
  const auto last = static_cast<U>(std::min<std::int64_t>(C - 1, std::numeric_limits<I>::max()));
  const bool some = C > 0;
  const bool ignores = ignore_index >= std::numeric_limits<I>::min() && ignore_index <= std::numeric_limits<I>::max();
  const auto ignored_value = static_cast<I>(ignore_index);
  unsigned bad = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const I y = target[i];
    const bool ignored = ignores & (y == ignored_value);
    const bool inside = some & (static_cast<U>(y) <= last);  // negative values have become huge
    bad |= static_cast<unsigned>(!(ignored | inside));
    classes[i] = ignored ? kIgnored<K> : static_cast<K>(y);
  }
  return bad == 0;
}

template <class I, class K>
std::int64_t Read(const TargetTask& task) {
  const I* const data = static_cast<const I*>(task.target->data);
  K* const classes = static_cast<K*>(task.classes);
  if (task.at->uniform() && task.at->stride() == 1 &&
      ReadDense(data + task.begin, task.end - task.begin, task.C, task.ignore_index, classes + task.begin))
    return -1;
  for (std::int64_t i = task.begin; i < task.end; ++i) {
    const auto y = static_cast<std::int64_t>(data[task.at->Offset(i)]);
    const bool ignored = y == task.ignore_index;
    if (!ignored && (y < 0 || y >= task.C)) return i;
    classes[i] = ignored ? kIgnored<K> : static_cast<K>(y);
  }
  return -1;
}

std::int64_t ReadTargets(const TargetTask& task) {
  return ForDType(TargetTypes{}, task.target->dtype, [&]<class I>() {
    return ForClassType(ClassBytes(task.C), [&]<class K>() { return Read<I, K>(task); });
  });
}

ReadTargetsFunction ReadTargetsTable() {
  return ReadTargets;
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(ReadTargetsTable);

ReadTargetsFunction ReadTargetsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(ReadTargetsTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
