// Trains the model of word_model.h with onehot::Embedding, onehot::LinearCrossEntropy and onehot::EmbeddingBackward; all else
// is plain loops. scripts/demo.sh runs it.
//
//   word_model WORDS.npy BATCH EPOCHS DIR
//
//   WORDS.npy  [words] i32: the text, a number in [0, V) for each word
//   BATCH      N, positions in a step, at most a quarter of those of the text
//   EPOCHS     how often the positions are gone through, each time in another order
//
//   DIR gets losses.csv, and the pieces of the step that would come next: see Model::WriteStep().
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "word_model.h"
#include "word_text.h"

namespace {

// Chosen by trial of 0.004, 0.01 and 0.03: the least loss after one epoch of 378 steps.
constexpr double kRate = 0.03;
constexpr std::int64_t kRisingSteps = 50;  // in which the rate rises to kRate; from there it falls to 0 at the end

using Clock = std::chrono::steady_clock;
double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Mean loss, and the share of the positions whose most likely word is the right one.
std::pair<double, double> Evaluate(Model& model, const std::vector<std::int64_t>& positions, std::int64_t batch) {
  double loss = 0;
  std::int64_t right = 0;
  const auto count = static_cast<std::int64_t>(positions.size());
  for (std::int64_t k = 0; k < count; k += batch) {
    model.Take(&positions[Size(k)], std::min(batch, count - k));
    const std::pair<double, std::int64_t> sums = model.Evaluate();
    loss += sums.first;
    right += sums.second;
  }
  return {loss / static_cast<double>(count), static_cast<double>(right) / static_cast<double>(count)};
}

// A bar on stderr, where that is a terminal; wiped at the end.
void Draw(std::int64_t step, std::int64_t steps, double loss, double seconds) {
  constexpr int kBar = 30;
  static const bool drawn = isatty(STDERR_FILENO) != 0;
  if (!drawn) return;
  const int done = static_cast<int>(kBar * step / steps);
  std::fprintf(stderr, step == steps ? "\r\x1b[K" : "\rtraining [%.*s%*s] loss %.3f, %.0f s left\x1b[K", done,
               "##############################", kBar - done, "", loss,
               seconds * static_cast<double>(steps - step) / static_cast<double>(step));
}

// "1,234,567".
std::string Grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

// Writes all losses to losses.csv, prints those of epochs. Returns the positions of one more step.
std::vector<std::int64_t> Train(const Text& text, Model& model, std::int64_t batch, int epochs,
                                const std::string& path) {
  std::FILE* const csv = std::fopen(path.c_str(), "w");
  if (csv == nullptr) throw std::runtime_error("cannot write " + path);
  std::fprintf(csv, "step,loss,held_out\n");
  std::vector<std::int64_t> order = text.training;
  std::mt19937_64 random(2);
  const auto positions = static_cast<std::int64_t>(order.size());
  const std::int64_t steps = positions / batch * epochs, rising = std::min(kRisingSteps, steps / 10 + 1);
  double seconds = 0;
  for (std::int64_t epoch = 1, step = 0; epoch <= epochs; ++epoch) {
    for (std::size_t k = order.size() - 1; k > 0; --k) std::swap(order[k], order[random() % (k + 1)]);
    double sum = 0;
    for (std::int64_t k = 0; k + batch <= positions; k += batch) {
      const auto start = Clock::now();
      model.Take(&order[Size(k)], batch);
      const double loss = model.Differentiate();
      const double up = static_cast<double>(step + 1) / static_cast<double>(rising);
      const double down = static_cast<double>(steps - step) / static_cast<double>(steps);
      model.Step(kRate * std::min(up, 1.0) * down);
      seconds += SecondsSince(start);
      sum += loss;
      std::fprintf(csv, "%" PRId64 ",%.6f,\n", ++step, loss);
      Draw(step, steps, loss, seconds);
    }
    const std::pair<double, double> held = Evaluate(model, text.held, batch);
    std::fprintf(csv, "%" PRId64 ",,%.6f\n", step, held.first);
    std::printf("epoch %" PRId64 ": loss %.4f in the mean; words held out %.4f, %.2f %% of them right\n", epoch,
                sum / static_cast<double>(positions / batch), held.first, 100 * held.second);
  }
  if (std::fclose(csv) != 0) throw std::runtime_error("cannot write " + path);
  std::printf("%s steps of %s words, %s words a second, %.0f s in all\n", Grouped(steps).c_str(),
              Grouped(batch).c_str(), Grouped(std::llround(static_cast<double>(steps * batch) / seconds)).c_str(),
              seconds);
  order.resize(Size(batch));
  return order;
}

void Run(const Text& text, std::int64_t batch, int epochs, const std::string& directory) {
  batch = std::min(batch, static_cast<std::int64_t>(text.training.size()) / 4);
  std::printf("%s words, %s to learn from, %s held out\n", Grouped(text.vocabulary).c_str(),
              Grouped(static_cast<std::int64_t>(text.training.size())).c_str(),
              Grouped(static_cast<std::int64_t>(text.held.size())).c_str());
  std::printf("frequencies alone: loss %.4f, words held out %.4f\n", text.entropy, text.held_entropy);
  Model model(text, batch);
  const std::vector<std::int64_t> next = Train(text, model, batch, epochs, directory + "/losses.csv");

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("peak memory %.0f MB, of it parameters, gradient and Adam's means %.0f MB, scratch of the loss %.0f MB; ",
              static_cast<double>(usage.ru_maxrss) * 1024e-6, static_cast<double>(model.ParameterBytes()) * 1e-6,
              static_cast<double>(model.ScratchBytes()) * 1e-6);
  std::printf("logits and their gradient would take %.0f MB\n", 8e-6 * static_cast<double>(batch * text.vocabulary));

  model.Take(next.data(), batch);
  model.Differentiate();
  for (const bool of_table : {true, false}) {
    const std::pair<double, double> slope = model.SlopeAndLength(of_table);
    std::printf("slope of the loss along the gradient of the %s %.6f, length of the gradient %.6f\n",
                of_table ? "table" : "mixture", slope.first, slope.second);
    if (!(std::abs(slope.first - slope.second) <= 1e-3 * slope.second))
      throw std::runtime_error("the gradient is not that of the loss");
  }
  model.Differentiate();
  model.WriteStep(directory);
}

}  // namespace

int main(int argc, char** argv) {
  const int batch = argc == 5 ? std::atoi(argv[2]) : 0, epochs = argc == 5 ? std::atoi(argv[3]) : 0;
  if (batch < 1 || epochs < 1) {
    std::fprintf(stderr, "usage: %s WORDS.npy BATCH EPOCHS DIR\n", argv[0]);
    return 2;
  }
  try {
    Run(ReadText(argv[1]), batch, epochs, argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
