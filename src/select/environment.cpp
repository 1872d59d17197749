#include "select/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "cpu/isa.h"

extern "C" char** environ;

namespace onehot::select {

Result<Environment> ReadEnvironment() {
  Environment read;
  if (environ == nullptr) return read;
  // One pass instead of a getenv for each variable: plans are made in tens of nanoseconds.
  constexpr std::string_view kPrefix = "ONEHOT_";
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if ((*variable)[0] != 'O' || (*variable)[1] != 'N' || std::strncmp(*variable, kPrefix.data(), kPrefix.size()) != 0)
      continue;
    const std::string_view text = *variable + kPrefix.size();
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    if (value.empty()) continue;
    if (name == "LOG") {
      read.log = value != "0";
    } else if (name == "FORCE") {
      read.force = value;
    } else if (name == "MAX_ISA") {
      const auto known = cpu::InstructionSets();
      std::size_t place = 0;
      while (place < known.size() && known[place] != value) ++place;
      if (place == known.size())
        return Status::Error(Code::kBadArgument, fmt::format("ONEHOT_MAX_ISA: must be one of {} on this CPU, is {}",
                                                             fmt::join(known, ", "), value));
      read.max_isa = static_cast<Isa>(place);
    }
  }
  return read;
}

}  // namespace onehot::select
