// Trains a classifier of pixels on a picture and a label map of the same size, with onehot::CrossEntropy and
// onehot::CrossEntropyBackward; all else is plain loops. scripts/demo.sh runs it.
//
//   pixel_classifier PICTURE.jpg LABELS.png DIVISOR STEPS DIR
//
//   A colour of the label map is a class. The kClasses most frequent ones are learnt. Picture and map are reduced by
//   DIVISOR: a block of DIVISOR x DIVISOR pixels becomes its mean colour and its label; blocks with other labels, or with
//   more than one, are ignored, as borders are in data sets for segmentation.
//
//   features F [K, P] of the P pixels: colour and position, see AddFeatures(). Each step, from weights W [C, K] = 0 on:
//
//     logits  = W F                                    [C, P], which is [1, C, H, W] to onehot
//     loss    = weighted mean of -log softmax(logits)  onehot::CrossEntropy, with log-sum-exp and argmax
//     logits  = d loss / d logits                      onehot::CrossEntropyBackward, in place
//     G       = logits F^T                             d loss / d W
//     W      -= kRate V, V = kMomentum V + G
//
//   DIR gets labels.png and prediction.png, and what it takes to compute loss and gradient after the last step once more:
//   log_probability.npy, lse.npy, target.npy, weight.npy, gradient.npy.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "npy.h"
#include "onehot/onehot.h"
#include "picture.h"
#include "pixel_data.h"

namespace {

constexpr float kRate = 1, kMomentum = 0.7F;  // chosen by trial: the loss falls in each of the first 20 steps

// ---- the products, over as many pixels at a time as keep their features in the second cache: 54 x 512 x 4 bytes

constexpr std::int64_t kTile = 512;

// logits [C, P] = weights [C, K] times features [K, P].
void Multiply(const std::vector<float>& weights, const Data& data, std::vector<float>& logits) {
  const std::int64_t pixels = data.P(), features = data.features;
  std::fill(logits.begin(), logits.end(), 0.0F);
  for (std::int64_t begin = 0; begin < pixels; begin += kTile) {
    const std::int64_t end = std::min(begin + kTile, pixels);
    for (std::int64_t c = 0; c < kClasses; ++c) {
      float* const z = &logits[static_cast<std::size_t>(c * pixels)];
      for (std::int64_t k = 0; k < features; ++k) {
        const float w = weights[static_cast<std::size_t>(c * features + k)];
        const float* const f = &data.feature[static_cast<std::size_t>(k * pixels)];
        for (std::int64_t p = begin; p < end; ++p) z[p] += w * f[p];
      }
    }
  }
}

// [C, K] = gradient of the logits [C, P] times features transposed [P, K]: in f32 within 16 lanes of a tile, in f64 beyond.
std::vector<double> WeightGradient(const std::vector<float>& gradient, const Data& data) {
  constexpr int kLanes = 16;
  const std::int64_t pixels = data.P(), features = data.features;
  std::vector<double> sums(static_cast<std::size_t>(kClasses * features), 0.0);
  for (std::int64_t begin = 0; begin < pixels; begin += kTile) {
    const std::int64_t end = std::min(begin + kTile, pixels);
    for (std::int64_t c = 0; c < kClasses; ++c) {
      const float* const g = &gradient[static_cast<std::size_t>(c * pixels)];
      for (std::int64_t k = 0; k < features; ++k) {
        const float* const f = &data.feature[static_cast<std::size_t>(k * pixels)];
        float lanes[kLanes] = {};
        std::int64_t p = begin;
        for (; p + kLanes <= end; p += kLanes)
          for (int l = 0; l < kLanes; ++l) lanes[l] += g[p + l] * f[p + l];
        double sum = 0;
        for (; p < end; ++p) sum += static_cast<double>(g[p]) * static_cast<double>(f[p]);
        for (const float lane : lanes) sum += static_cast<double>(lane);
        sums[static_cast<std::size_t>(c * features + k)] += sum;
      }
    }
  }
  return sums;
}

// ---- the loss

onehot::Plan Prepared(onehot::Result<onehot::Plan> plan) {
  if (!plan.ok()) throw std::runtime_error(plan.status().message());
  return std::move(*plan);
}

// A plan and the time of its fastest run.
struct Operator {
  onehot::Plan plan;
  double seconds = std::numeric_limits<double>::infinity();

  void Run() {
    const auto start = std::chrono::steady_clock::now();
    if (const onehot::Status status = plan.Run(); !status.ok()) throw std::runtime_error(status.message());
    seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
};

// NpyWriteArray has said what is wrong.
template <typename Value, std::size_t kRank>
void WriteArray(const std::string& path, const char* descr, const std::int64_t (&dims)[kRank],
                const std::vector<Value>& values) {
  if (!NpyWriteArray(path.c_str(), descr, sizeof(Value), static_cast<int>(kRank), dims, values.data()))
    throw std::runtime_error("without that file there is nothing to compare with");
}

class Classifier {
 public:
  explicit Classifier(const Data& data)
      : data_(data),
        logits_(static_cast<std::size_t>(kClasses * data.P())),
        lse_(static_cast<std::size_t>(data.P())),
        argmax_(static_cast<std::size_t>(data.P())),
        weights_(static_cast<std::size_t>(kClasses * data.features)),
        velocity_(weights_.size()),
        forward_{Prepared(onehot::Prepare(Forward()))},
        backward_{Prepared(onehot::Prepare(Backward()))} {}

  // Loss, log-sum-exps and the most likely classes.
  double Evaluate() {
    Multiply(weights_, data_, logits_);
    forward_.Run();
    return loss_;
  }

  // After Evaluate(): the gradient takes the place of the logits.
  void Differentiate() { backward_.Run(); }

  // After Differentiate().
  void Step() {
    const std::vector<double> gradient = WeightGradient(logits_, data_);
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      velocity_[k] = kMomentum * velocity_[k] + static_cast<float>(gradient[k]);
      weights_[k] -= kRate * velocity_[k];
    }
  }

  // After Evaluate(): the share of the pixels, and the mean over the classes of their share, whose class is the most
  // likely one.
  std::pair<double, double> Right() const {
    std::vector<std::int64_t> right(kClasses, 0);
    for (std::size_t p = 0; p < argmax_.size(); ++p)
      if (argmax_[p] == data_.target[p]) ++right[static_cast<std::size_t>(argmax_[p])];
    double shares = 0;
    int present = 0;
    for (std::size_t c = 0; c < right.size(); ++c) {
      if (data_.pixels[c] == 0) continue;
      shares += static_cast<double>(right[c]) / static_cast<double>(data_.pixels[c]);
      ++present;
    }
    const std::int64_t all = std::accumulate(right.begin(), right.end(), std::int64_t{0});
    return {static_cast<double>(all) / static_cast<double>(data_.Counted()), shares / present};
  }

  // The slope of the loss along its own gradient, by a central difference, and the length of the gradient, which it
  // should be. After Differentiate(); leaves weights as they were, logits not.
  std::pair<double, double> SlopeAndLength() {
    const std::vector<double> gradient = WeightGradient(logits_, data_);
    const double length = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    // The difference errs by h^2 / 6 times the third derivative, of the order of 1 for features of variance 1, and by
    // the rounding of two losses to f32 arithmetic, at most 5 units of 2^-23 each, over 2 h: 3e-6 and 2e-4.
    const double h = 1.0 / 256;
    const std::vector<float> here = weights_;
    double losses[2];
    for (int side = 0; side < 2; ++side) {
      for (std::size_t k = 0; k < here.size(); ++k)
        weights_[k] = here[k] + static_cast<float>((side == 0 ? h : -h) * gradient[k] / length);
      losses[side] = Evaluate();
    }
    weights_ = here;
    return {(losses[0] - losses[1]) / (2 * h), length};
  }

  // The most likely class of every pixel, also where the label is ignored.
  std::vector<std::uint8_t> Predict() {
    Multiply(weights_, data_, logits_);
    const std::vector<std::uint8_t> any(data_.target.size(), 0);  // argmax is given where the target is not ignored
    onehot::CrossEntropy problem;
    problem.input = Logits();
    problem.target = {any.data(), onehot::DType::kU8, {1, data_.height, data_.width}};
    problem.argmax = Argmax();
    Operator{Prepared(onehot::Prepare(problem))}.Run();
    return {argmax_.begin(), argmax_.end()};
  }

  // After Evaluate().
  void WriteLogProbabilities(const std::string& path, const std::string& lse_path) const {
    std::vector<float> x = logits_;
    for (std::size_t k = 0; k < x.size(); ++k) x[k] -= lse_[k % lse_.size()];
    Write(path, x);
    const std::int64_t dims[] = {1, data_.height, data_.width};
    WriteArray(lse_path, "<f4", dims, lse_);
  }
  // After Differentiate().
  void WriteGradient(const std::string& path) const { Write(path, logits_); }

  double forward_seconds() const { return forward_.seconds; }
  double backward_seconds() const { return backward_.seconds; }

 private:
  onehot::TensorView Logits() {
    return {logits_.data(), onehot::DType::kF32, {1, kClasses, data_.height, data_.width}};
  }
  onehot::TensorView Lse() { return {lse_.data(), onehot::DType::kF32, {1, data_.height, data_.width}}; }
  onehot::TensorView Argmax() { return {argmax_.data(), onehot::DType::kI64, {1, data_.height, data_.width}}; }
  onehot::ConstTensorView Target() const {
    return {data_.target.data(), onehot::DType::kU8, {1, data_.height, data_.width}};
  }
  onehot::CrossEntropyOptions Options() const {
    onehot::CrossEntropyOptions options;
    options.weight = onehot::ConstTensorView(data_.weight.data(), onehot::DType::kF32, {kClasses});
    options.ignore_index = kIgnored;
    return options;
  }
  onehot::CrossEntropy Forward() {
    onehot::CrossEntropy problem;
    problem.input = Logits();
    problem.target = Target();
    problem.loss = onehot::TensorView(&loss_, onehot::DType::kF64, {1});
    problem.lse = Lse();
    problem.argmax = Argmax();
    problem.options = Options();
    return problem;
  }
  onehot::CrossEntropyBackward Backward() {
    onehot::CrossEntropyBackward problem;
    problem.input = Logits();
    problem.target = Target();
    problem.out = Logits();
    problem.lse = Lse();
    problem.grad_loss = onehot::ConstTensorView(&one_, onehot::DType::kF32, {1});
    problem.options = Options();
    return problem;
  }
  void Write(const std::string& path, const std::vector<float>& values) const {
    const std::int64_t dims[] = {1, kClasses, data_.height, data_.width};
    WriteArray(path, "<f4", dims, values);
  }

  const Data& data_;
  std::vector<float> logits_;              // [C, P], or their gradient
  std::vector<float> lse_;                 // [P]
  std::vector<std::int64_t> argmax_;       // [P]
  std::vector<float> weights_, velocity_;  // [C, K]
  double loss_ = 0;
  float one_ = 1;
  Operator forward_, backward_;
};

// ---- the pictures

// The first class dark blue, the others around the circle of hues, each as far from those before as the golden ratio
// takes it and of one of three brightnesses; ignored pixels are black.
std::vector<Rgb> Palette() {
  std::vector<Rgb> palette = {{16, 24, 72}};
  for (int c = 1; c < kClasses; ++c) {
    const double turn = 6 * std::fmod(c * std::numbers::phi, 1.0), bright = 255 - 50 * (c % 3);
    const auto channel = [&](double shift) {
      const double x = std::fmod(turn + shift, 6.0);
      return static_cast<std::uint8_t>(bright * (0.25 + 0.75 * std::clamp(std::abs(x - 3) - 1, 0.0, 1.0)));
    };
    palette.push_back({channel(0), channel(4), channel(2)});
  }
  palette.push_back({0, 0, 0});
  return palette;
}

void WritePngs(const Data& data, std::vector<std::uint8_t> prediction, const std::string& directory) {
  const std::vector<Rgb> palette = Palette();
  std::vector<std::uint8_t> labels = data.target;
  std::replace(labels.begin(), labels.end(), kIgnored, static_cast<std::uint8_t>(kClasses));
  WritePng(directory + "/labels.png", data.height, data.width, labels, palette);
  WritePng(directory + "/prediction.png", data.height, data.width, prediction, palette);
}

void Train(const Data& data, int steps, const std::string& directory) {
  Classifier classifier(data);
  for (int step = 0;; ++step) {
    const double loss = classifier.Evaluate();
    const std::pair<double, double> right = classifier.Right();
    std::printf("step %d: loss %.9f, right %.2f %% of the pixels, %.2f %% in the mean of the classes\n", step, loss,
                100 * right.first, 100 * right.second);
    if (step == steps) break;
    classifier.Differentiate();
    classifier.Step();
    if (step > 0) continue;
    classifier.Evaluate();
    classifier.Differentiate();
    const std::pair<double, double> slope = classifier.SlopeAndLength();
    std::printf("slope of the loss along its gradient %.6f, length of the gradient %.6f\n", slope.first, slope.second);
    if (!(std::abs(slope.first - slope.second) <= 1e-3 * slope.second))
      throw std::runtime_error("the gradient is not that of the loss");
  }

  const std::int64_t positions[] = {1, data.height, data.width}, classes[] = {kClasses};
  classifier.WriteLogProbabilities(directory + "/log_probability.npy", directory + "/lse.npy");
  classifier.Differentiate();
  classifier.WriteGradient(directory + "/gradient.npy");
  WriteArray(directory + "/target.npy", "|u1", positions, data.target);
  WriteArray(directory + "/weight.npy", "<f4", classes, data.weight);
  WritePngs(data, classifier.Predict(), directory);

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("onehot::CrossEntropy %.1f ms, onehot::CrossEntropyBackward in place %.1f ms, peak memory %.0f MB\n",
              1e3 * classifier.forward_seconds(), 1e3 * classifier.backward_seconds(),
              static_cast<double>(usage.ru_maxrss) * 1024e-6);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s PICTURE.jpg LABELS.png DIVISOR STEPS DIR\n", argv[0]);
    return 2;
  }
  try {
    Train(Load(argv[1], argv[2], std::atoi(argv[3])), std::atoi(argv[4]), argv[5]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
