// How a command gives up: an exit code for scripts and one sentence for a person. main prints it.
#ifndef ONEHOT_CLI_FAILURE_H_
#define ONEHOT_CLI_FAILURE_H_

#include <stdexcept>
#include <string>

#include "onehot/status.h"

namespace onehot::cli {

// Part of the interface: `onehot --help` lists them. A run stopped by a signal ends with 128 + its number instead, as
// shells report it: 130 for Ctrl-C.
enum class Exit : int {
  kDone = 0,
  kData = 1,   // an array is refused: shape, dtype, or an index or target out of range
  kUsage = 2,  // the command line, or an ONEHOT_* variable
  kFile = 3,   // a file cannot be read or written, or is no .npy file that we know
};

class Failure : public std::runtime_error {
 public:
  Failure(Exit code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

// Throws what the library said, unless it is Ok.
void ThrowIfBad(const Status& status);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_FAILURE_H_
