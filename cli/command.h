// What the commands that run an operator have in common.
#ifndef ONEHOT_CLI_COMMAND_H_
#define ONEHOT_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/array.h"
#include "onehot/plan.h"
#include "onehot/tensor.h"

namespace onehot::cli {

// A subcommand and what it does once the whole command line is known to be good.
struct Command {
  CLI::App* app;
  std::function<void()> run;
};

Command AddCrossEntropy(CLI::App& onehot);
Command AddCrossEntropyBackward(CLI::App& onehot);
Command AddEmbedding(CLI::App& onehot);
Command AddEmbeddingBackward(CLI::App& onehot);
Command AddInfo(CLI::App& onehot);
Command AddLinearCrossEntropy(CLI::App& onehot);
Command AddLinearCrossEntropyBackward(CLI::App& onehot);
Command AddNllLoss(CLI::App& onehot);
Command AddNllLossBackward(CLI::App& onehot);

// --threads and --explain.
struct RunFlags {
  int threads = 0;
  bool explain = false;
};
void AddRunFlags(CLI::App& command, RunFlags& flags);

// --dtype bf16
void AddVoidDType(CLI::App& command, std::string& dtype);

// --out-dtype: one of `choices`.
void AddOutDType(CLI::App& command, std::string& out_dtype, std::initializer_list<DType> choices,
                 const std::string& description);
// None where the option was not given.
std::optional<DType> OutDType(const std::string& out_dtype);

// For --accumulate: the result has the dtype of `base`. Throws a Failure if --out-dtype asks for another.
void ThrowIfOutDTypeDiffers(const std::string& out_dtype, const InputArray& base);
// What is added to becomes what stands in the result.
void CopyAccumulated(const InputArray& base, const TensorView& out);

// For options that are one of a few words: says what is wrong with the text.
std::function<std::string(const std::string&)> OneOf(std::vector<std::string> words);
// For options that are numbers of 0 or more: what is wrong with the text, or "".
std::string CheckCount(const std::string& text);

// Runs a plan with a progress bar, and stops it when a signal comes. Returns the seconds it took. Throws a Failure.
double RunPlan(std::string_view name, const Plan& plan, const RunFlags& flags);

// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What a command itself has to say for --explain: words and their texts.
using Lines = std::vector<std::pair<std::string, std::string>>;

// What --explain prints, to stdout. `run` is what RunPlan returned, `total` runs since the command began.
void Explain(std::string_view operator_name, const Plan& plan, const RunFlags& flags, double run,
             const Stopwatch& total, const std::vector<Lines>& lines);

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_COMMAND_H_
