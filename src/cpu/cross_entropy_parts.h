// What cross entropy and its gradient share: how positions are cut into batches, and what the options come to.
#ifndef ONEHOT_CPU_CROSS_ENTROPY_PARTS_H_
#define ONEHOT_CPU_CROSS_ENTROPY_PARTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "core/layout.h"
#include "core/scratch.h"
#include "cpu/cross_entropy_simd.h"
#include "cpu/ordered_sum.h"
#include "cpu/per_position.h"
#include "cpu/softmax_simd.h"
#include "cpu/targets.h"
#include "cpu/threads.h"
#include "onehot/cross_entropy.h"

namespace onehot::cpu {

// A tensor with one element for each position, and where they lie.
template <class View>
struct PerPosition {
  std::optional<View> tensor;
  Positions at;

  PerPosition(const std::optional<View>& view)  // NOLINT: implicit on purpose
      : tensor(view), at(view ? Flatten(*view, view->rank) : Positions{}) {}
  explicit operator bool() const { return tensor.has_value(); }

  // The elements of a batch, or null if there is no tensor.
  const float* Load(std::int64_t begin, std::int64_t count, float* to) const {
    if (!tensor) return nullptr;
    LoadPositions(*tensor, at, begin, count, to);
    return to;
  }
  void Store(std::int64_t begin, std::int64_t count, const float* from) const {
    if (tensor) StorePositions(*tensor, at, begin, count, from);
  }
};
using InputPerPosition = PerPosition<ConstTensorView>;
using OutputPerPosition = PerPosition<TensorView>;

// Positions side by side in row-major order, all in one run of the innermost axis.
struct Batch {
  std::int64_t begin, count;
};

// Why a problem cannot be taken, or "". Op is CrossEntropy or its gradient.
template <class Op>
std::string_view RefuseLogits(const Op& op) {
  if (op.input.dtype == DType::kF64) return "f64 logits are left to the definition";
  const std::int64_t C = op.C();
  if (ClassBytes(C) == 0) return "more than 2^32 - 1 classes";
  const CrossEntropyOptions& options = op.options;
  // Not 0 and yet no normal f32.
  const auto lost = [](double x) {
    const double size = std::abs(x);
    return x != 0 && !(size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max());
  };
  const double share = C > 0 ? options.label_smoothing / static_cast<double>(C) : 0;
  const double inverse = options.softcap > 0 ? 1 / options.softcap : 0;
  if (lost(share) || lost(options.z_loss) || lost(options.softcap) || lost(inverse))
    return "an option that f32 cannot hold";
  return "";
}

struct BlockLoss {
  double loss, z_loss;
};

class LossProblem {
 public:
  LossProblem(const ConstTensorView& input, const ConstTensorView& target, const CrossEntropyOptions& options, int axis,
              Isa isa, ScratchLayout& layout)
      : kernels(CrossEntropyKernelsFor(isa)),
        softmax(SoftmaxKernelsFor(isa)),
        N(target.numel()),
        C(input.dim(axis)),
        size(SizeOf(input.dtype)),
        targets(target, C, options.ignore_index, isa, layout),
        token_weight(options.token_weight),
        input_(input),
        options_(options),
        input_at_(Flatten(WithoutAxis(input, axis), input.rank - 1)),
        class_step_(input.stride(axis)) {
    if (options.weight) weight_ = layout.Book<float>(C);
    block_weights_ = layout.Book<WeightSums>(sum_blocks());
    // Planes: what fits a tile. Rows: as many as fit a quarter of a 1 MiB L2, so that they are there still when they are
    // read again.
    batch_ =
        planes() ? StatisticsBatch(C) : std::clamp<std::int64_t>((256 << 10) / position_bytes(), 1, kStatisticsBatch);
    if (planes()) {
      slots_ = std::clamp<std::int64_t>(N / batch_ + 1, 1, std::max(8, Processors()));
      tiles_ = layout.Book<float>(slots_ * kTile);
    }
  }

  std::int64_t sum_blocks() const { return SumBlocks(N); }
  bool planes() const { return input_at_.step() == 1 && class_step_ != 1; }
  std::int64_t batch() const { return batch_; }

  // Positions of a task, whole batches. It reads about 2 MiB of logits: some 50 us, so that handing tasks out costs
  // nothing.
  static constexpr std::int64_t kTaskBytes = 2 << 20;
  std::int64_t position_bytes() const { return std::max<std::int64_t>(C * size, 1); }
  std::int64_t TaskPositions(std::int64_t batch) const {
    return std::max(batch, kTaskBytes / position_bytes() / batch * batch);
  }

  // How many of so many threads have a tile.
  int Threads(int threads) const {
    return planes() ? static_cast<int>(std::min<std::int64_t>(threads, slots_)) : threads;
  }
  float* Tile(Scratch scratch, int thread) const {
    return planes() ? scratch.Get(tiles_).data() + thread * kTile : nullptr;
  }

  // Calls work(batch) for the positions [begin, end), at most so many in each. Another tensor's runs may be shorter.
  template <class F>
  void ForBatches(std::int64_t begin, std::int64_t end, std::int64_t most, std::int64_t other_run, F&& work) const {
    const std::int64_t run = std::min(input_at_.run(), other_run);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t count = std::min({end - at, run - at % run, most});
      work(Batch{at, count});
      at += count;
    }
  }

  Logits LogitsOf(const Batch& batch) const {
    return {.data = static_cast<const std::byte*>(input_.data) + input_at_.Offset(batch.begin) * size,
            .dtype = input_.dtype,
            .position_step = input_at_.step(),
            .class_step = class_step_,
            .count = batch.count,
            .C = C,
            .softcap = static_cast<float>(options_.softcap)};
  }

  void ClassesOf(Scratch scratch, const Batch& batch, std::uint32_t* classes) const {
    const int bytes = targets.class_bytes();
    kernels.classes({targets.Classes(scratch) + batch.begin * bytes, bytes, 1, batch.count}, classes);
  }

  // Class weights as f32, or null; call once before the others.
  const float* LoadWeights(Scratch scratch) const {
    if (!options_.weight) return nullptr;
    float* const weight = scratch.Get(weight_).data();
    LoadPositions(*options_.weight, Flatten(*options_.weight, 1), 0, C, weight);
    return weight;
  }

  LossFactors Factors(const float* weight) const {
    double all = 0;
    for (std::int64_t v = 0; weight != nullptr && options_.label_smoothing > 0 && v < C; ++v)
      all += static_cast<double>(weight[v]);
    if (weight == nullptr) all = static_cast<double>(C);
    return {.label_smoothing = static_cast<float>(options_.label_smoothing),
            .share = static_cast<float>(options_.label_smoothing / static_cast<double>(C)),
            .all_weights = static_cast<float>(all),
            .z_loss = static_cast<float>(options_.z_loss)};
  }

  // D and D_z over all positions, in the order of blocks.
  WeightSums Denominators(Scratch scratch, const float* weight, int threads) const {
    WeightSums* const sums = scratch.Get(block_weights_).data();
    ParallelFor(threads, sum_blocks(), [&](std::int64_t b, int) {
      const Batch block{b * kSumBlock, std::min(kSumBlock, N - b * kSumBlock)};
      std::uint32_t classes[kSumBlock];
      float tokens[kSumBlock];
      ClassesOf(scratch, block, classes);
      sums[b] =
          kernels.block_weights(classes, block.count, weight, token_weight.Load(block.begin, block.count, tokens));
    });
    WeightSums total{0, 0, 0};
    for (std::int64_t b = 0; b < sum_blocks(); ++b) {
      total.D += sums[b].D;
      total.D_z += sums[b].D_z;
      total.counted += sums[b].counted;
    }
    return total;
  }

  // What mean divides by; 1 for the other reductions.
  WeightSums Divisors(const WeightSums& sums) const {
    if (options_.reduction != Reduction::kMean) return {1, 1, sums.counted};
    if (!options_.denominator) return sums;
    double given = 0;
    LoadPositions(*options_.denominator, Positions{}, 0, 1, &given);
    return {given, given, sums.counted};
  }

  // Loss and total_weight where they are one number. block_loss(b) gives the sums of block b: t l, and t q.
  template <class F>
  void StoreReduced(Scratch scratch, const float* weight, int threads, const std::optional<TensorView>& out,
                    const std::optional<TensorView>& total_weight, F&& block_loss) const {
    const bool mean = options_.reduction == Reduction::kMean, none = options_.reduction == Reduction::kNone;
    const bool reduced = out && !none;
    if (!reduced && !total_weight) return;
    WeightSums sums{1, 1, 1};
    if (mean || total_weight) sums = Denominators(scratch, weight, threads);
    if (total_weight) {
      const double total = none ? 0.0 : sums.D;
      StorePositions(*total_weight, Positions{}, 0, 1, &total);
    }
    if (!reduced) return;
    double loss = 0, z_loss = 0;
    for (std::int64_t b = 0; b < sum_blocks(); ++b) {
      const auto [l, q] = block_loss(b);
      loss += l, z_loss += q;
    }
    const WeightSums divisors = Divisors(sums);
    loss /= divisors.D;
    if (options_.z_loss > 0) loss += z_loss / divisors.D_z;
    if (mean && options_.zero_if_empty && sums.counted == 0) loss = 0;
    StorePositions(*out, Positions{}, 0, 1, &loss);
  }
  // The same from terms that lie side by side. Terms of z_loss may be null.
  void StoreReduced(Scratch scratch, const float* weight, int threads, const std::optional<TensorView>& out,
                    const std::optional<TensorView>& total_weight, const float* terms, const float* z_terms) const {
    StoreReduced(scratch, weight, threads, out, total_weight, [&](std::int64_t b) {
      const std::int64_t begin = b * kSumBlock, count = std::min(kSumBlock, N - begin);
      return BlockLoss{kernels.block_sum(terms + begin, count),
                       z_terms == nullptr ? 0 : kernels.block_sum(z_terms + begin, count)};
    });
  }

  const CrossEntropyKernels& kernels;
  const SoftmaxKernels& softmax;
  const std::int64_t N, C, size;
  const Targets targets;
  const InputPerPosition token_weight;

 private:
  const ConstTensorView input_;
  const CrossEntropyOptions options_;
  const Positions input_at_;
  const std::int64_t class_step_;
  std::int64_t batch_ = 1, slots_ = 0;
  Piece<float> tiles_;
  Piece<float> weight_;
  Piece<WeightSums> block_weights_;
};

// The arrays of a batch, on the stack of the thread that works on it.
struct BatchArrays {
  alignas(64) std::uint32_t classes[kBatch];
  alignas(64) float max[kBatch], sum[kBatch], log_sum[kBatch], reference[kBatch], linear[kBatch], moment[kBatch];
  alignas(64) float token_weight[kBatch];
};

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_CROSS_ENTROPY_PARTS_H_
