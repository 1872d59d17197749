// What the commands that run an operator have in common.
#ifndef ONEHOT_CLI_COMMAND_H_
#define ONEHOT_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onehot/plan.h"

namespace onehot::cli {

// A subcommand and what it does once the whole command line is known to be good.
struct Command {
  CLI::App* app;
  std::function<void()> run;
};

Command AddEmbedding(CLI::App& onehot);
Command AddEmbeddingBackward(CLI::App& onehot);
Command AddInfo(CLI::App& onehot);

// --threads and --explain.
struct RunFlags {
  int threads = 0;
  bool explain = false;
};
void AddRunFlags(CLI::App& command, RunFlags& flags);

// --dtype bf16
void AddVoidDType(CLI::App& command, std::string& dtype);

// Runs a plan with a progress bar, and stops it when a signal comes. Returns the seconds it took. Throws a Failure.
double RunPlan(std::string_view name, const Plan& plan, const RunFlags& flags);

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What --explain prints, to stdout. `run` is what RunPlan returned, `total` runs since the command began. `lines` are
// what the command itself has to say: a word and its text.
void Explain(std::string_view operator_name, const Plan& plan, const RunFlags& flags, double run,
             const Stopwatch& total, const std::vector<std::pair<std::string, std::string>>& lines);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_COMMAND_H_
