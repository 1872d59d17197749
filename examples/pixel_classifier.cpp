// Trains a classifier of pixels on a picture and a label map of the same size, with onehot::CrossEntropy and
// onehot::CrossEntropyBackward; all else is plain loops. scripts/demo.sh runs it.
//
//   pixel_classifier PICTURE.jpg LABELS.png DIVISOR STEPS DIR
//
//   A colour of the label map is a class. The kClasses most frequent ones are learnt. Picture and map are reduced by
//   DIVISOR: a block of DIVISOR x DIVISOR pixels becomes its mean colour and its label; blocks with other labels, or with
//   more than one, are ignored, as borders are in data sets for segmentation.
//
//   features F [K, P] of the P pixels: colour and position, see Features(). Each step, from weights W [C, K] = 0 on:
//
//     logits  = W F                                    [C, P], which is [1, C, H, W] to onehot
//     loss    = weighted mean of -log softmax(logits)  onehot::CrossEntropy, with log-sum-exp and argmax
//     logits  = d loss / d logits                      onehot::CrossEntropyBackward, in place
//     G       = logits F^T                             d loss / d W
//     W      -= kRate V, V = kMomentum V + G
//
//   DIR gets labels.png and prediction.png, and what it takes to compute loss and gradient after the last step once more:
//   log_probability.npy, target.npy, weight.npy, gradient.npy.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "npy.h"
#include "onehot/onehot.h"
#include "picture.h"

namespace {

constexpr std::int64_t kClasses = 21;
constexpr std::uint8_t kIgnored = 255;
constexpr float kRate = 1, kMomentum = 0.7F;  // chosen by trial: the loss falls in each of the first 20 steps

// ---- the data

struct Data {
  std::int64_t height = 0, width = 0, features = 0;
  std::int64_t colours = 0;          // of the label map
  std::vector<std::uint8_t> target;  // [P]
  std::vector<std::int64_t> pixels;  // [C]: of each class
  std::vector<float> weight;         // [C]: class weights
  std::vector<float> feature;        // [K, P]

  std::int64_t P() const { return height * width; }
  std::int64_t Counted() const { return std::accumulate(pixels.begin(), pixels.end(), std::int64_t{0}); }
};

// The class of each colour, the most frequent first; colours that are as frequent in their own order.
std::map<Rgb, std::uint8_t> ClassesOf(const Picture& map) {
  std::map<Rgb, std::int64_t> count;
  for (const Rgb& colour : map.pixels) ++count[colour];
  std::vector<std::pair<std::int64_t, Rgb>> order;
  for (const auto& entry : count) order.emplace_back(-entry.second, entry.first);
  std::sort(order.begin(), order.end());
  std::map<Rgb, std::uint8_t> classes;
  for (std::size_t c = 0; c < order.size(); ++c)
    classes[order[c].second] = c < kClasses ? static_cast<std::uint8_t>(c) : kIgnored;
  return classes;
}

void ReduceLabels(const Picture& map, std::int64_t divisor, Data& data) {
  const std::map<Rgb, std::uint8_t> classes = ClassesOf(map);
  data.colours = static_cast<std::int64_t>(classes.size());
  data.target.assign(static_cast<std::size_t>(data.P()), kIgnored);
  data.pixels.assign(kClasses, 0);
  for (std::int64_t y = 0; y < data.height; ++y) {
    for (std::int64_t x = 0; x < data.width; ++x) {
      const Rgb* block = &map.pixels[static_cast<std::size_t>((y * map.width + x) * divisor)];
      bool uniform = true;
      for (std::int64_t k = 0; k < divisor * divisor; ++k)
        uniform = uniform && block[k / divisor * map.width + k % divisor] == block[0];
      const std::uint8_t label = uniform ? classes.at(block[0]) : kIgnored;
      data.target[static_cast<std::size_t>(y * data.width + x)] = label;
      if (label != kIgnored) ++data.pixels[label];
    }
  }
  // One over the root of its frequency, 1 for a class with its fair share: between the classes as they are, most of which
  // would hardly count beside the first, and all as if they were equally large.
  for (const std::int64_t n : data.pixels)
    data.weight.push_back(n == 0 ? 0
                                 : static_cast<float>(std::sqrt(static_cast<double>(data.Counted()) /
                                                                static_cast<double>(kClasses * n))));
}

// Appends a feature, shifted to mean 0 and scaled to variance 1, so that one rate suits all of them.
template <typename Value>
void AddFeature(Data& data, Value value) {
  double sum = 0, squares = 0;
  std::vector<double> values;
  for (std::int64_t p = 0; p < data.P(); ++p) values.push_back(value(p / data.width, p % data.width));
  for (const double v : values) sum += v;
  const double mean = sum / static_cast<double>(data.P());
  for (const double v : values) squares += (v - mean) * (v - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(data.P()));
  for (const double v : values) data.feature.push_back(static_cast<float>((v - mean) / deviation));
  ++data.features;
}

// 1; the colour and its products, nine; products of waves over the width, which is once around, and over the height.
void AddFeatures(const Picture& picture, std::int64_t divisor, Data& data) {
  constexpr int kWaves = 4;
  data.feature.assign(static_cast<std::size_t>(data.P()), 1);
  data.features = 1;

  std::vector<double> colour[3];
  for (std::int64_t p = 0; p < data.P(); ++p) {
    const Rgb* block =
        &picture.pixels[static_cast<std::size_t>((p / data.width * picture.width + p % data.width) * divisor)];
    std::int64_t sum[3] = {};
    for (std::int64_t k = 0; k < divisor * divisor; ++k) {
      const Rgb& pixel = block[k / divisor * picture.width + k % divisor];
      sum[0] += pixel.r;
      sum[1] += pixel.g;
      sum[2] += pixel.b;
    }
    for (int i = 0; i < 3; ++i)
      colour[i].push_back(static_cast<double>(sum[i]) / static_cast<double>(255 * divisor * divisor));
  }
  const auto at = [&](std::int64_t y, std::int64_t x) { return static_cast<std::size_t>(y * data.width + x); };
  for (int i = 0; i < 3; ++i) {
    AddFeature(data, [&](std::int64_t y, std::int64_t x) { return colour[i][at(y, x)]; });
    for (int j = i; j < 3; ++j)
      AddFeature(data, [&](std::int64_t y, std::int64_t x) { return colour[i][at(y, x)] * colour[j][at(y, x)]; });
  }

  for (int k = 0; k <= kWaves; ++k) {
    for (int j = 0; j <= 2 * kWaves; ++j) {  // cosines of 0, 1, ... waves, then sines of 1, 2, ...
      if (k == 0 && j == 0) continue;        // the 1
      AddFeature(data, [&](std::int64_t y, std::int64_t x) {
        const double down = std::numbers::pi * (static_cast<double>(y) + 0.5) / static_cast<double>(data.height);
        const double along = 2 * std::numbers::pi * (static_cast<double>(x) + 0.5) / static_cast<double>(data.width);
        return std::cos(k * down) * (j <= kWaves ? std::cos(j * along) : std::sin((j - kWaves) * along));
      });
    }
  }
}

Data Load(const std::string& picture_path, const std::string& map_path, std::int64_t divisor) {
  const Picture picture = ReadJpeg(picture_path), map = ReadPng(map_path);
  if (picture.height != map.height || picture.width != map.width)
    throw std::runtime_error("picture and label map differ in size");
  if (divisor < 1 || picture.height / divisor < 2 || picture.width / divisor < 2)
    throw std::runtime_error("DIVISOR leaves less than 2 x 2 pixels");
  Data data;
  data.height = picture.height / divisor;
  data.width = picture.width / divisor;
  ReduceLabels(map, divisor, data);
  if (data.Counted() == 0) throw std::runtime_error("DIVISOR leaves no block with one label");
  AddFeatures(picture, divisor, data);

  const auto percent = [](std::int64_t part, std::int64_t all) {
    return 100 * static_cast<double>(part) / static_cast<double>(all);
  };
  std::printf("picture and label map %lld x %lld, %lld colours in the map; one pixel for %lld x %lld\n",
              static_cast<long long>(map.width), static_cast<long long>(map.height),
              static_cast<long long>(data.colours), static_cast<long long>(divisor), static_cast<long long>(divisor));
  std::printf("%lld classes, %.1f %% to %.1f %% of the pixels; %.1f %% of other or mixed labels are ignored\n",
              static_cast<long long>(kClasses),
              percent(*std::max_element(data.pixels.begin(), data.pixels.end()), data.P()),
              percent(*std::min_element(data.pixels.begin(), data.pixels.end()), data.P()),
              percent(data.P() - data.Counted(), data.P()));
  std::printf(
      "logits 1 x %lld x %lld x %lld f32 (%.1f MB), targets u8, class weights, %lld features of colour and position\n",
      static_cast<long long>(kClasses), static_cast<long long>(data.height), static_cast<long long>(data.width),
      4e-6 * static_cast<double>(kClasses * data.P()), static_cast<long long>(data.features));
  return data;
}

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
  void WriteLogProbabilities(const std::string& path) const {
    std::vector<float> x = logits_;
    for (std::size_t k = 0; k < x.size(); ++k) x[k] -= lse_[k % lse_.size()];
    Write(path, x);
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
    if (!NpyWriteArray(path.c_str(), "<f4", sizeof(float), 4, dims, values.data()))
      throw std::runtime_error("cannot go on");
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
    std::printf("step %d: loss %.7f, right %.2f %% of the pixels, %.2f %% in the mean of the classes\n", step, loss,
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

  const std::int64_t dims[] = {1, data.height, data.width}, classes = kClasses;
  classifier.WriteLogProbabilities(directory + "/log_probability.npy");
  classifier.Differentiate();
  classifier.WriteGradient(directory + "/gradient.npy");
  if (!NpyWriteArray((directory + "/target.npy").c_str(), "|u1", 1, 3, dims, data.target.data()) ||
      !NpyWriteArray((directory + "/weight.npy").c_str(), "<f4", sizeof(float), 1, &classes, data.weight.data()))
    throw std::runtime_error("cannot go on");
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
