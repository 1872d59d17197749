// Words as numbers, which of them are predicted in training and which are held out, and what a model that knows how
// frequent words are, but not what comes before, could at best make of it.
#ifndef EXAMPLES_WORD_TEXT_H_
#define EXAMPLES_WORD_TEXT_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "npy.h"
#include "word_mix.h"

struct Text {
  std::vector<std::int32_t> words;           // the text, word by word
  std::int64_t vocabulary = 0;               // words are in [0, vocabulary)
  std::vector<std::int64_t> training, held;  // positions to predict
  double entropy = 0;                        // of the words in `training`, in nats
  double held_entropy = 0;                   // cross entropy of those in `held` under the frequencies of the former
};

// One run of kRun words in kRunsPerHeld is held out. A position whose context reaches into a run of the other kind is left
// out, so that no word is both learnt from and tested on.
constexpr std::int64_t kRun = 64, kRunsPerHeld = 16;

inline Text ReadText(const char* path) {
  NpyArray file;
  if (!NpyRead(path, "<i4", sizeof(std::int32_t), 1, &file)) throw std::runtime_error("there is no text");
  const auto* const begin = static_cast<const std::int32_t*>(file.data);
  Text text;
  text.words.assign(begin, begin + file.dims[0]);
  std::free(file.data);

  const auto is_held = [](std::int64_t i) { return i / kRun % kRunsPerHeld == kRunsPerHeld - 1; };
  for (std::int64_t i = kContext; i < static_cast<std::int64_t>(text.words.size()); ++i)
    if (is_held(i) == is_held(i - kContext)) (is_held(i) ? text.held : text.training).push_back(i);
  if (text.held.empty()) throw std::runtime_error("the text is too short");

  text.vocabulary = 1 + *std::max_element(text.words.begin(), text.words.end());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(text.vocabulary), 0);
  const auto count_of = [&](std::int64_t i) -> std::int64_t& {
    return counts[static_cast<std::size_t>(text.words[static_cast<std::size_t>(i)])];
  };
  for (const std::int64_t i : text.training) ++count_of(i);
  const auto n = static_cast<double>(text.training.size());
  for (const std::int64_t count : counts)
    if (count > 0) text.entropy += static_cast<double>(count) / n * std::log(n / static_cast<double>(count));
  // One more for each word: those that are only in `held` have a probability too.
  for (const std::int64_t i : text.held)
    text.held_entropy += std::log((n + static_cast<double>(text.vocabulary)) / static_cast<double>(count_of(i) + 1));
  text.held_entropy /= static_cast<double>(text.held.size());
  return text;
}

#endif  // EXAMPLES_WORD_TEXT_H_
