#include "cpu/isa.h"

#include <array>
#include <vector>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace onehot::cpu {
namespace {

struct Targets {
  std::vector<std::int64_t> bits;
  std::vector<std::string_view> names;

  Targets() {
    // hwy::SupportedTargets asks the CPU each time, and CPUID traps in virtual machines: once is enough.
    const std::int64_t supported = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
    for (int bit = 0; bit < 63; ++bit) {  // the lower the bit, the better the target
      const std::int64_t target = std::int64_t{1} << bit;
      if ((supported & target) == 0) continue;
      bits.push_back(target);
      names.emplace_back(hwy::TargetName(target));
    }
  }
};

const Targets& AllTargets() {
  static const Targets targets;
  return targets;
}

}  // namespace

std::span<const std::string_view> InstructionSets() {
  return AllTargets().names;
}

std::int64_t TargetMask(Isa isa) {
  const Targets& all = AllTargets();
  std::int64_t mask = 0;
  for (std::size_t i = static_cast<std::size_t>(isa); i < all.bits.size(); ++i) mask |= all.bits[i];
  return mask;
}

}  // namespace onehot::cpu
