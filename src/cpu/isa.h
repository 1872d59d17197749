// Instruction sets, by Highway's names, chosen per plan and not for the whole process.
#ifndef ONEHOT_CPU_ISA_H_
#define ONEHOT_CPU_ISA_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/isa.h"

namespace onehot::cpu {

// Compiled in and present in this CPU, best first. Never empty.
std::span<const std::string_view> InstructionSets();

// Highway's bits for the instruction set at that place and all below it.
std::int64_t TargetMask(Isa isa);

// table(isa) for each instruction set, in that order: kernel tables are looked up once and then indexed.
template <class F>
auto ForEachInstructionSet(F&& table) {
  std::vector<decltype(table(Isa::kBest))> all;
  for (std::size_t i = 0; i < InstructionSets().size(); ++i) all.push_back(table(static_cast<Isa>(i)));
  return all;
}

}  // namespace onehot::cpu

// For use in the HWY_ONCE part of a file that compiled FUNCTION for every target: the FUNCTION of that instruction set.
// (HWY_DYNAMIC_DISPATCH would take the process-wide choice.)
#define ONEHOT_DISPATCH(FUNCTION, ISA)                      \
  ([](::onehot::Isa isa) {                                  \
    hwy::ChosenTarget chosen;                               \
    chosen.Update(::onehot::cpu::TargetMask(isa));          \
    return HWY_DISPATCH_TABLE(FUNCTION)[chosen.GetIndex()]; \
  }(ISA))

#endif  // ONEHOT_CPU_ISA_H_
