// What pixel_classifier.cpp learns from: a picture and a label map, reduced, as targets, class weights and features.
#ifndef EXAMPLES_PIXEL_DATA_H_
#define EXAMPLES_PIXEL_DATA_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "picture.h"

constexpr std::int64_t kClasses = 21;
constexpr std::uint8_t kIgnored = 255;

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
inline std::map<Rgb, std::uint8_t> ClassesOf(const Picture& map) {
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

inline void ReduceLabels(const Picture& map, std::int64_t divisor, Data& data) {
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
inline void AddFeatures(const Picture& picture, std::int64_t divisor, Data& data) {
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

inline Data Load(const std::string& picture_path, const std::string& map_path, std::int64_t divisor) {
  const Picture picture = ReadJpeg(picture_path), map = ReadPng(map_path);
  if (picture.height != map.height || picture.width != map.width)
    throw std::runtime_error("picture and label map differ in size");
  if (divisor < 1 || picture.height / divisor < 16 || picture.width / divisor < 16)
    throw std::runtime_error("DIVISOR leaves less than 16 x 16 pixels");
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

#endif  // EXAMPLES_PIXEL_DATA_H_
