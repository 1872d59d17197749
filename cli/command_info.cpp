#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command.h"
#include "onehot/onehot.h"

namespace onehot::cli {
namespace {

void Run() {
  fmt::print("onehot {}\n\n", Version());
  fmt::print("instruction sets, best first (ONEHOT_MAX_ISA takes one of them):\n  {}\n\n",
             fmt::join(InstructionSets(), ", "));
  fmt::print("threads (OMP_NUM_THREADS or --threads changes it):\n  {}\n\n", DefaultThreads());
  fmt::print("operators and their implementations, best first (ONEHOT_FORCE takes one of them):\n");
  const std::vector<OperatorInfo> operators = Operators();
  std::size_t width = 0;
  for (const OperatorInfo& info : operators) width = std::max(width, info.name.size());
  for (const OperatorInfo& info : operators)
    fmt::print("  {:<{}}  {}\n", info.name, width, fmt::join(info.implementations, ", "));
}

}  // namespace

Command AddInfo(CLI::App& onehot) {
  CLI::App* app = onehot.add_subcommand("info", "Show version, instruction sets, threads and implementations");
  return {app, Run};
}

}  // namespace onehot::cli
