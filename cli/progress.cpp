#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace onehot::cli {
namespace {

// Long enough to seem to move, short enough for 80 columns with a label and a time.
constexpr int kBarWidth = 30;
constexpr auto kBetweenDraws = std::chrono::milliseconds(100);
constexpr auto kDelay = std::chrono::seconds(1);

std::FILE* Terminal() {
  const char* kind = std::getenv("TERM");
  const bool plain = kind != nullptr && std::string_view(kind) == "dumb";
  return ::isatty(STDERR_FILENO) && !plain ? stderr : nullptr;
}

}  // namespace

Progress::Progress(std::string label) : Progress(std::move(label), Terminal(), kDelay) {}

Progress::Progress(std::string label, std::FILE* stream, Clock::duration delay)
    : label_(std::move(label)), stream_(stream), start_(Clock::now()), next_(start_ + delay) {}

Progress::~Progress() {
  if (!drawn_) return;
  fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
}

void Progress::Update(std::int64_t done, std::int64_t total) {
  if (stream_ == nullptr) return;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + kBetweenDraws;
  drawn_ = true;
  const double share = total > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0) : 1.0;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto filled = static_cast<std::size_t>(share * kBarWidth);
  std::string line = fmt::format("\r{} [{:<{}}] {:3.0f} %", label_, std::string(filled, '#'), kBarWidth, 100 * share);
  if (share > 0) line += fmt::format("  {:.0f} s left", seconds / share - seconds);
  fmt::print(stream_, "{}\x1b[K", line);
  std::fflush(stream_);
}

}  // namespace onehot::cli
