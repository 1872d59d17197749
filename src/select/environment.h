#ifndef ONEHOT_SELECT_ENVIRONMENT_H_
#define ONEHOT_SELECT_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "core/isa.h"
#include "onehot/status.h"

namespace onehot::select {

// The ONEHOT_* variables that choose how a plan runs.
struct Environment {
  bool log = false;
  std::string force;  // empty: nothing forced
  Isa max_isa = Isa::kBest;
};

// Reads them now. Fails for an ONEHOT_MAX_ISA that no instruction set here has as its name.
Result<Environment> ReadEnvironment();

}  // namespace onehot::select

#endif  // ONEHOT_SELECT_ENVIRONMENT_H_
