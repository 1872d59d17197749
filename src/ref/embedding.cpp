#include "ref/embedding.h"

#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "core/layout.h"
#include "ops/embedding_backward.h"
#include "ops/indices.h"

namespace onehot::ref {
namespace {

// Positions between two looks at the progress callback, which then costs next to nothing.
constexpr std::int64_t kReport = 1024;

// Calls visit(position, row) for every position, in order. Stops at the first row outside [0, rows) with its error, and
// where the caller wants to stop.
template <class F>
Status ForEachIndex(const ConstTensorView& indices, std::int64_t rows, const RunOptions& options, F&& visit) {
  const Positions at = Flatten(indices, indices.rank);
  return ForDType(IndexTypes{}, indices.dtype, [&]<class I>() -> Status {
    for (std::int64_t i = 0; i < at.count; ++i) {
      const std::int64_t row = RowOf(static_cast<const I*>(indices.data)[at.Offset(i)]);
      if (row < 0 || row >= rows) return BadIndex("indices", indices, i, rows);
      if (options.progress && i % kReport == kReport - 1 && !options.progress(i, at.count))
        return Status::Error(Code::kCancelled, "cancelled: out is undefined");
      visit(i, row);
    }
    return Status::Ok();
  });
}

// Sums in f64 and rounds once.
class EmbeddingBackwardPlan final : public PlanBody {
 public:
  explicit EmbeddingBackwardPlan(const EmbeddingBackward& op) : op_(op) {
    sum_ = layout_.Book<double>(op.V() * op.D());
    count_ = layout_.Book<std::int64_t>(op.V());
    first_ = layout_.Book<std::int64_t>(op.V());
  }

  Status Run(Scratch scratch, const RunOptions& options) const override;

 private:
  template <class G, class O>
  Status RunAs(Scratch scratch, const RunOptions& options) const {
    const auto sum = scratch.Get(sum_);
    const auto count = scratch.Get(count_), first = scratch.Get(first_);
    const std::int64_t V = op_.V(), D = op_.D(), step = op_.grad.stride(-1);
    const Positions grad_rows = Flatten(op_.grad, op_.grad.rank - 1);
    const auto grad = [&](std::int64_t i, std::int64_t c) {
      return static_cast<const G*>(op_.grad.data)[grad_rows.Offset(i) + c * step];
    };
    std::ranges::fill(count, 0);
    if (Status bad = ForEachIndex(op_.indices, V, {},
                                  [&](std::int64_t i, std::int64_t v) {
                                    if (count[static_cast<std::size_t>(v)]++ == 0)
                                      first[static_cast<std::size_t>(v)] = i;
                                  });
        !bad.ok())
      return bad;
    if (Status stopped = ForEachIndex(op_.indices, V, options,
                                      [&](std::int64_t i, std::int64_t v) {
                                        for (std::int64_t c = 0; c < D; ++c) {
                                          double& total = sum[static_cast<std::size_t>(v * D + c)];
                                          total = i == first[static_cast<std::size_t>(v)] ? Widen(grad(i, c))
                                                                                          : total + Widen(grad(i, c));
                                        }
                                      });
        !stopped.ok())
      return stopped;
    for (std::int64_t v = 0; v < V; ++v) {
      const std::int64_t n = count[static_cast<std::size_t>(v)];
      const bool contributes = n > 0 && v != PaddingRow(op_);
      if (op_.counts) static_cast<std::int64_t*>(op_.counts->data)[v * op_.counts->stride(0)] = n;
      for (std::int64_t c = 0; c < D; ++c) {
        O& out = static_cast<O*>(op_.out.data)[v * op_.out.stride(0) + c * op_.out.stride(1)];
        if (!contributes) {
          if (!op_.accumulate) out = Narrow<O>(0.0);
          continue;
        }
        double value = sum[static_cast<std::size_t>(v * D + c)];
        if (op_.scale_grad_by_freq) value /= static_cast<double>(n);
        if (op_.accumulate) value += Widen(out);
        if (n == 1 && !op_.accumulate) {
          const G only = grad(first[static_cast<std::size_t>(v)], c);
          if constexpr (std::is_same_v<G, O>) {
            out = only;
          } else {
            out = Narrow<O>(Widen(only));
          }
        } else {
          out = Narrow<O>(value);
        }
      }
    }
    return Status::Ok();
  }

  const EmbeddingBackward op_;
  Piece<double> sum_;
  Piece<std::int64_t> count_, first_;
};

// Below RunAs: clang 14 leaves a member template out that a lambda calls above its body.
Status EmbeddingBackwardPlan::Run(Scratch scratch, const RunOptions& options) const {
  return ForDType(GradientTypes{}, op_.grad.dtype, [&]<class G>() -> Status {
    if (op_.out.dtype == op_.grad.dtype) return RunAs<G, G>(scratch, options);
    return RunAs<G, float>(scratch, options);
  });
}

class EmbeddingPlan final : public PlanBody {
 public:
  explicit EmbeddingPlan(const Embedding& op) : op_(op) {}

  Status Run(Scratch, const RunOptions& options) const override {
    if (Status bad = ForEachIndex(op_.indices, op_.V(), {}, [](std::int64_t, std::int64_t) {}); !bad.ok()) return bad;
    const auto size = static_cast<std::size_t>(SizeOf(op_.weight.dtype));
    const Positions out_rows = Flatten(op_.out, op_.out.rank - 1);
    const auto address = [&](auto* data, std::int64_t offset) {
      return data + offset * static_cast<std::int64_t>(size);
    };
    return ForEachIndex(op_.indices, op_.V(), options, [&](std::int64_t i, std::int64_t v) {
      for (std::int64_t c = 0; c < op_.D(); ++c)
        std::memcpy(address(static_cast<std::byte*>(op_.out.data), out_rows.Offset(i) + c * op_.out.stride(-1)),
                    address(static_cast<const std::byte*>(op_.weight.data),
                            v * op_.weight.stride(0) + c * op_.weight.stride(1)),
                    size);
    });
  }

 private:
  const Embedding op_;
};

}  // namespace

std::unique_ptr<PlanBody> PlanEmbeddingBackward(const EmbeddingBackward& op, Isa) {
  return std::make_unique<EmbeddingBackwardPlan>(op);
}

std::unique_ptr<PlanBody> PlanEmbedding(const Embedding& op, Isa) {
  return std::make_unique<EmbeddingPlan>(op);
}

}  // namespace onehot::ref
