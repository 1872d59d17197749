// A bar on the terminal for runs that take a while.
#ifndef ONEHOT_CLI_PROGRESS_H_
#define ONEHOT_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace onehot::cli {

// Draws on one line, which it wipes when it goes. Shows nothing before `delay` has passed: most runs are over by then.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // On stderr, if that is a terminal.
  explicit Progress(std::string label);
  // On any stream; a null one draws nothing.
  Progress(std::string label, std::FILE* stream, Clock::duration delay);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void Update(std::int64_t done, std::int64_t total);

 private:
  const std::string label_;
  std::FILE* const stream_;
  const Clock::time_point start_;
  Clock::time_point next_;  // when to draw
  bool drawn_ = false;
};

}  // namespace onehot::cli

#endif  // ONEHOT_CLI_PROGRESS_H_
