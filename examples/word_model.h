// A model of the next word of a text, out of its whole vocabulary, from the kContext words before: its parameters, their
// gradient, and steps of the optimizer Adam. The parameters are table [V, H], H = kWidth, and those of word_mix.h. For the
// N positions of a batch:
//
//   rows    = table[context]                                [N, kContext, H]  onehot::Embedding
//   x       = mixture of rows                               [N, H]            word_mix.h
//   loss    = mean of -log softmax(x table^T)[target]
//   dx      = d loss / d x                                  [N, H]
//   dtable  = d loss / d table, through the logits          [V, H]            all three: onehot::LinearCrossEntropy
//   drows   = d loss / d rows                               [N, kContext, H]  word_mix.h
//   dtable += onehot(context)^T drows                       [V, H]            onehot::EmbeddingBackward, accumulate
//
// One table makes both the vectors of words and the logits, so both of its gradients are added up in one place. The N x V
// logits are never all in memory. All sums have a fixed order: losses have the same bits for any number of threads.
#ifndef EXAMPLES_WORD_MODEL_H_
#define EXAMPLES_WORD_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "npy.h"
#include "onehot/onehot.h"
#include "word_mix.h"
#include "word_text.h"

inline void Throw(const onehot::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}
inline onehot::Plan Prepared(onehot::Result<onehot::Plan> plan) {
  Throw(plan.status());
  return std::move(*plan);
}

inline std::size_t Size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

class Model {
 public:
  Model(const Text& text, std::int64_t batch)
      : text_(text),
        n_(batch),
        table_size_(text.vocabulary * kWidth),
        parameters_(Size(table_size_ + kMixing)),
        gradient_(parameters_.size()),
        mean_(parameters_.size()),
        mean_square_(parameters_.size()),
        context_(Size(n_ * kContext)),
        target_(Size(n_)),
        argmax_(Size(n_)),
        rows_(Size(n_ * kContext * kWidth)),
        drows_(rows_.size()),
        t_(Size(n_ * kWidth)),
        x_(t_.size()),
        dx_(t_.size()),
        gather_(Prepared(onehot::Prepare(Gather()))),
        differentiate_(Prepared(onehot::Prepare(LossAndGradients()))),
        evaluate_(Prepared(onehot::Prepare(LossAndArgmax()))),
        scatter_(Prepared(onehot::Prepare(Scatter()))) {
    // Vectors so short that all words start about equally likely, and x near their sum; the offset is 0.
    std::mt19937 random(1);
    const auto fill = [&](std::int64_t begin, std::int64_t end, float middle, float spread) {
      for (std::int64_t k = begin; k < end; ++k)
        parameters_[Size(k)] = middle + spread * (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F);
    };
    fill(0, table_size_, 0, 0.2F);
    fill(table_size_, table_size_ + kMatrix, 1, 1);
    fill(table_size_ + kMatrix, table_size_ + kOffset, 0, 0.1F);
  }

  // The positions that the next calls are about. What is missing to a batch is filled up with ignored ones.
  void Take(const std::int64_t* positions, std::int64_t count) {
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t at = positions[std::min(i, count - 1)];
      target_[Size(i)] = i < count ? text_.words[Size(at)] : static_cast<std::int32_t>(onehot::kDefaultIgnoreIndex);
      for (std::int64_t k = 0; k < kContext; ++k) context_[Size(i * kContext + k)] = text_.words[Size(at - 1 - k)];
    }
  }

  // The mean loss, and its gradient.
  double Differentiate() {
    Forward();
    Throw(differentiate_.Run());
    MixBackward(Mixing(), rows_.data(), n_, t_.data(), dx_.data(), &gradient_[Size(table_size_)], drows_.data());
    Throw(scatter_.Run());
    return loss_;
  }

  // The sum of the losses, and how often the most likely word is the right one.
  std::pair<double, std::int64_t> Evaluate() {
    Forward();
    Throw(evaluate_.Run());
    std::int64_t right = 0;
    for (std::size_t i = 0; i < target_.size(); ++i) right += argmax_[i] == target_[i];
    return {loss_, right};
  }

  // After Differentiate(). Besides, parameters decay towards 0, which the loss of words held out gains from: 6.65 with it,
  // 6.69 without.
  void Step(double rate) {
    constexpr float kMemory = 0.9F, kSquareMemory = 0.99F, kLeast = 1e-8F, kDecay = 0.1F;
    ++steps_;
    const auto factor = static_cast<float>(rate / (1 - std::pow(kMemory, steps_)));
    const auto square_factor = static_cast<float>(1 / (1 - std::pow(kSquareMemory, steps_)));
    const float kept = 1 - kDecay * static_cast<float>(rate);
    for (std::size_t k = 0; k < parameters_.size(); ++k) {
      const float g = gradient_[k];
      mean_[k] += (1 - kMemory) * (g - mean_[k]);
      mean_square_[k] += (1 - kSquareMemory) * (g * g - mean_square_[k]);
      parameters_[k] =
          kept * parameters_[k] - factor * mean_[k] / (std::sqrt(square_factor * mean_square_[k]) + kLeast);
    }
  }

  // After Differentiate(): slope of the mean loss along the gradient of the table, or of the other parameters, by a
  // central difference, and the length of that gradient, which it should be.
  std::pair<double, double> SlopeAndLength(bool of_table) {
    const std::size_t begin = of_table ? 0 : Size(table_size_), end = of_table ? Size(table_size_) : parameters_.size();
    double square = 0;
    for (std::size_t k = begin; k < end; ++k)
      square += static_cast<double>(gradient_[k]) * static_cast<double>(gradient_[k]);
    // The difference errs by h^2 / 6 times the third derivative, and by the rounding of two losses to f32 arithmetic, at
    // most some 5 units of 2^-23 times the loss each, over 2 h. Together that was 7e-5 of the slope at most in trained
    // models, and twice that with h = 1 / 64.
    const double h = 1.0 / 128, length = std::sqrt(square);
    const std::vector<float> here = parameters_;
    double losses[2];
    for (int side = 0; side < 2; ++side) {
      for (std::size_t k = begin; k < end; ++k)
        parameters_[k] =
            here[k] + static_cast<float>((side == 0 ? h : -h) * static_cast<double>(gradient_[k]) / length);
      losses[side] = Evaluate().first / static_cast<double>(n_);
    }
    parameters_ = here;
    return {(losses[0] - losses[1]) / (2 * h), length};
  }

  // After Differentiate(): all that it takes to repeat the step.
  void WriteStep(const std::string& directory) {
    const auto write = [&](const char* name, const char* descr, const std::vector<std::int64_t>& dims,
                           const auto& values) {
      const std::string path = directory + "/" + name;
      if (!NpyWriteArray(path.c_str(), descr, sizeof values[0], static_cast<int>(dims.size()), dims.data(),
                         values.data()))
        throw std::runtime_error("without that file there is nothing to compare with");  // NpyWriteArray has said why
    };
    const std::vector<std::int64_t> table = {text_.vocabulary, kWidth}, positions = {n_, kWidth};
    const std::vector<double> loss = {loss_};
    const std::vector<float> mixing(Mixing(), Mixing() + kMixing);
    write("context.npy", "<i4", {n_, kContext}, context_);
    write("target.npy", "<i4", {n_}, target_);
    write("table.npy", "<f4", table, parameters_);
    write("mixing.npy", "<f4", {kMixing}, mixing);
    write("rows.npy", "<f4", {n_, kContext, kWidth}, rows_);
    write("x.npy", "<f4", positions, x_);
    write("loss.npy", "<f8", {}, loss);
    write("dx.npy", "<f4", positions, dx_);
    write("drows.npy", "<f4", {n_, kContext, kWidth}, drows_);
    write("dtable.npy", "<f4", table, gradient_);
  }

  std::size_t ParameterBytes() const { return 4 * parameters_.size() * sizeof(float); }
  std::size_t ScratchBytes() const { return differentiate_.scratch_bytes(); }

 private:
  float* Mixing() { return &parameters_[Size(table_size_)]; }
  void Forward() {
    Throw(gather_.Run());
    Mix(Mixing(), rows_.data(), n_, t_.data(), x_.data());
  }

  onehot::TensorView Table(std::vector<float>& of) {
    return {of.data(), onehot::DType::kF32, {text_.vocabulary, kWidth}};
  }
  onehot::TensorView Rows(std::vector<float>& of) { return {of.data(), onehot::DType::kF32, {n_, kContext, kWidth}}; }
  onehot::TensorView Positions(std::vector<float>& of) { return {of.data(), onehot::DType::kF32, {n_, kWidth}}; }
  onehot::ConstTensorView Context() const { return {context_.data(), onehot::DType::kI32, {n_, kContext}}; }

  onehot::Embedding Gather() { return {Table(parameters_), Context(), Rows(rows_)}; }
  onehot::EmbeddingBackward Scatter() {
    onehot::EmbeddingBackward problem;
    problem.grad = Rows(drows_);
    problem.indices = Context();
    problem.out = Table(gradient_);
    problem.accumulate = true;
    return problem;
  }
  onehot::LinearCrossEntropy Loss() {
    onehot::LinearCrossEntropy problem;
    problem.input = Positions(x_);
    problem.weight = Table(parameters_);
    problem.target = {target_.data(), onehot::DType::kI32, {n_}};
    problem.loss = onehot::TensorView(&loss_, onehot::DType::kF64, {1});
    return problem;
  }
  onehot::LinearCrossEntropy LossAndArgmax() {
    onehot::LinearCrossEntropy problem = Loss();
    problem.argmax = onehot::TensorView(argmax_.data(), onehot::DType::kI64, {n_});
    problem.options.loss.reduction = onehot::Reduction::kSum;
    return problem;
  }
  onehot::LinearCrossEntropy LossAndGradients() {
    onehot::LinearCrossEntropy problem = Loss();
    problem.upstream.loss = onehot::ConstTensorView(&one_, onehot::DType::kF32, {1});
    problem.grad.input = Positions(dx_);
    problem.grad.weight = Table(gradient_);
    return problem;
  }

  const Text& text_;
  const std::int64_t n_, table_size_;
  std::vector<float> parameters_, gradient_;  // of the table, then those of word_mix.h
  std::vector<float> mean_, mean_square_;     // of the gradients of late
  std::vector<std::int32_t> context_, target_;
  std::vector<std::int64_t> argmax_;
  std::vector<float> rows_, drows_, t_, x_, dx_;
  double loss_ = 0;
  float one_ = 1;
  int steps_ = 0;
  onehot::Plan gather_, differentiate_, evaluate_, scatter_;
};

#endif  // EXAMPLES_WORD_MODEL_H_
