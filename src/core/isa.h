#ifndef ONEHOT_CORE_ISA_H_
#define ONEHOT_CORE_ISA_H_

#include <cstdint>

namespace onehot {

// The instruction set a plan is to use: a place in the best-first list of cpu::InstructionSets().
enum class Isa : std::uint8_t { kBest = 0 };

}  // namespace onehot

#endif  // ONEHOT_CORE_ISA_H_
