#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/failure.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "onehot/onehot.h"

namespace onehot::cli {
namespace {

// "154.4 MB"; powers of ten, like the GB/s beside it.
std::string Bytes(double bytes) {
  if (bytes < 1000) return fmt::format("{:.0f} bytes", bytes);
  bytes /= 1000;
  const char* unit = "kB";
  for (const char* larger : {"MB", "GB"}) {
    if (bytes < 1000) break;
    bytes /= 1000;
    unit = larger;
  }
  return fmt::format("{:.1f} {}", bytes, unit);
}

}  // namespace

void ThrowIfBad(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return;
    case Code::kCancelled:
      ThrowIfInterrupted();
      break;
    case Code::kBadArgument:
    case Code::kUnsupported:
      // Attributes are options here, and what is unsupported was forced by a variable.
      throw Failure(Exit::kUsage, status.message());
    case Code::kNullArgument:
    case Code::kBadDType:
    case Code::kBadShape:
    case Code::kBadData:
    case Code::kOutOfMemory:
      break;
  }
  throw Failure(Exit::kData, status.message());
}

void AddRunFlags(CLI::App& command, RunFlags& flags) {
  command
      .add_option("--threads", flags.threads,
                  "Threads to use at most (default: OMP_NUM_THREADS, else all CPUs); the result does not depend on it")
      ->type_name("N")
      ->check([](const std::string& text) {
        int threads = 0;
        if (CLI::detail::lexical_cast(text, threads) && threads > 0) return std::string();
        return "must be 1 or more, is " + text;
      });
  command.add_flag("--explain", flags.explain,
                   "Print which implementation ran and why others refused, bytes moved, working memory and time");
}

void AddVoidDType(CLI::App& command, std::string& dtype) {
  command.add_option("--dtype", dtype, "What two-byte void elements ('<V2', as ml_dtypes saves bfloat16) are: bf16")
      ->type_name("bf16")
      ->check(OneOf({"bf16"}));
}

void AddOutDType(CLI::App& command, std::string& out_dtype, std::initializer_list<DType> choices,
                 const std::string& description) {
  std::vector<std::string> names;
  for (const DType choice : choices) names.emplace_back(Name(choice));
  command.add_option("--out-dtype", out_dtype, description)
      ->type_name(fmt::format("{}", fmt::join(names, "|")))
      ->check(OneOf(names));
}

std::optional<DType> OutDType(const std::string& out_dtype) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    if (Name(dtype) == out_dtype) return dtype;
  return std::nullopt;
}

void ThrowIfOutDTypeDiffers(const std::string& out_dtype, const InputArray& base) {
  if (!out_dtype.empty() && Name(base.view().dtype) != out_dtype)
    throw Failure(Exit::kUsage, fmt::format("--out-dtype {}: the result has the dtype of {}, which is {}", out_dtype,
                                            base.path(), Name(base.view().dtype)));
}

void CopyAccumulated(const InputArray& base, const TensorView& out) {
  CopyBytes(out.data, base.view().data, base.view().numel() * SizeOf(out.dtype), "copying " + base.path());
}

std::function<std::string(const std::string&)> OneOf(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
    const std::string last = words.back();
    const std::string others = fmt::format("{}", fmt::join(words.begin(), words.end() - 1, ", "));
    return fmt::format("must be {}{}{}, is {}", others, others.empty() ? "" : " or ", last, text);
  };
}

std::string CheckCount(const std::string& text) {
  std::int64_t count = 0;
  if (CLI::detail::lexical_cast(text, count) && count >= 0) return "";
  return "must be an integer of 0 or more, is " + text;
}

double RunPlan(std::string_view name, const Plan& plan, const RunFlags& flags) {
  ThrowIfInterrupted();
  Progress progress{std::string(name)};
  RunOptions options;
  options.threads = flags.threads;
  options.progress = [&progress](std::int64_t done, std::int64_t total) {
    progress.Update(done, total);
    return PendingSignal() == 0;
  };
  const Stopwatch watch;
  ThrowIfBad(plan.Run(options));
  const double seconds = watch.seconds();
  // Not every implementation looks at the callback; the result is not wanted any more all the same.
  ThrowIfInterrupted();
  return seconds;
}

void Explain(std::string_view operator_name, const Plan& plan, const RunFlags& flags, double run,
             const Stopwatch& total, const std::vector<Lines>& lines) {
  const auto line = [](std::string_view word, std::string_view text) { fmt::print("{:<15} {}\n", word, text); };
  line("operator", operator_name);
  for (const Lines& group : lines)
    for (const auto& [word, text] : group) line(word, text);
  line("implementation", plan.instruction_set().empty()
                             ? std::string(plan.implementation())
                             : fmt::format("{}, {}", plan.implementation(), plan.instruction_set()));
  for (const Considered& considered : plan.considered())
    if (!considered.refusal.empty())
      line("refused", fmt::format("{}: {}", considered.implementation, considered.refusal));
  line("threads", fmt::format("at most {}", flags.threads > 0 ? flags.threads : DefaultThreads()));
  const auto read = static_cast<double>(plan.bytes_read()), written = static_cast<double>(plan.bytes_written());
  line("bytes", fmt::format("{} read, {} written", Bytes(read), Bytes(written)));
  line("working memory", Bytes(static_cast<double>(plan.scratch_bytes())));
  if (!plan.order().empty()) line("order", plan.order());
  if (plan.flops() > 0)
    line("products", fmt::format("{:.3g} GFLOP, {:.3g} GFLOP/s", plan.flops() / 1e9, plan.flops() / 1e9 / run));
  line("time", fmt::format("{:.3f} ms, {:.2f} GB/s", 1e3 * run, (read + written) / 1e9 / run));
  line("with files", fmt::format("{:.3f} ms", 1e3 * total.seconds()));
}

}  // namespace onehot::cli
