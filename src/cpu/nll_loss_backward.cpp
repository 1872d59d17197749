// NLL loss backward: the whole output is written, once, in the order in which it lies in memory; nearly all of it zeros.
//
//   1. targets are read and checked, and kept as class numbers of one, two or four bytes (cpu/targets.h)
//   2. out is written in one of these ways, whichever its strides allow:
//      planes   positions lie side by side: a row of each class is the comparison of the block's classes with it
//      flat     short rows or planes without gaps: put together in L1, zeros and values, and left as whole lines
//      strided  anything else, element by element
//      touched  accumulate and compact: only the one element of each position
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "cpu/cache.h"
#include "cpu/nll_loss.h"
#include "cpu/nll_simd.h"
#include "cpu/per_position.h"
#include "cpu/position_axes.h"
#include "cpu/rows_simd.h"
#include "cpu/targets.h"
#include "hwy/cache_control.h"
#include "ops/losses.h"

namespace onehot::cpu {
namespace {

// Bytes of out that one task writes: some 20 us, so that handing them out costs nothing and threads end together.
constexpr std::int64_t kTaskBytes = 1 << 20;

// Bytes of out put together in L1 at a time, which has 32 KiB and more; the classes of the block need some too.
constexpr std::int64_t kStagedBytes = 16 << 10;

// Planes at least so long are written one by one; shorter ones would be mostly the broken lines at their ends.
constexpr std::int64_t kPlaneBytes = 1 << 10;

// Tensors whose strides the axes of positions are followed through.
enum : std::size_t { kOut, kClasses, kGrad, kTokenWeight, kTensors };
using Axes = PositionAxes<kTensors>;

class OnePass final : public PlanBody {
 public:
  OnePass(const NllLossBackward& op, Isa isa)
      : op_(op),
        rows_(RowKernelsFor(isa)),
        kernels_(NllKernelsFor(isa)),
        N_(op.N()),
        C_(op.C()),
        size_(SizeOf(op.out.dtype)),
        none_(op.reduction == Reduction::kNone),
        class_stride_(op.compact ? 0 : op.out.stride(op.ClassAxis())),
        axes_({op.compact ? TensorLayout(op.out) : WithoutAxis(op.out, op.ClassAxis()),
               TensorLayout::Contiguous(op.target.dtype,
                                        {op.target.dims.data(), static_cast<std::size_t>(op.target.rank)}),
               none_ ? TensorLayout(op.grad_output) : Constant(),
               op.token_weight ? TensorLayout(*op.token_weight) : Constant()}),
        values_(kernels_.values(op.out.dtype)),
        planes_(kernels_.planes(size_)),
        targets_(op.target, C_, op.ignore_index, isa, layout_) {
    // One value for each class, or for all, is computed once, unless there are more classes than positions.
    table_ = !none_ && !op.token_weight && (!op.weight || C_ <= N_);
    if (table_) table_values_ = layout_.Book<std::byte>((op.weight ? C_ : 1) * size_);
    if (op.weight) weight_ = layout_.Book<std::byte>(C_ * real_size());
    const std::int64_t read = N_ * (SizeOf(op.target.dtype) + (none_ ? SizeOf(op.grad_output.dtype) : 0));
    // Touched elements lie apart; and with compact, C is free, so its product with N need not fit.
    if (!op.accumulate && !op.compact) stream_ = PastCaches(read, N_ * C_ * size_);
    ChooseForm();
  }

  std::string_view instruction_set() const override { return rows_.target; }

  Status Run(Scratch scratch, const RunOptions& options) const override {
    const std::int64_t touched = op_.accumulate || op_.compact ? 1 : C_;
    const std::int64_t bytes = N_ * (touched * size_ + SizeOf(op_.target.dtype));
    const int threads = ThreadsFor(bytes, options.threads);
    TouchScratch(scratch, scratch_bytes(), threads);
    if (Status bad = targets_.Read(scratch, threads); !bad.ok()) return bad;
    if (N_ == 0 || (C_ == 0 && !op_.compact)) return Status::Ok();
    Progress progress(options, N_ * touched * size_);
    Job job{scratch, progress, threads, targets_.Classes(scratch)};
    Prepare(job);
    switch (form_) {
      case Form::kPlanes:
        Planes(job);
        break;
      case Form::kFlat:
        Flat(job);
        break;
      case Form::kStrided:
        Strided(job);
        break;
      case Form::kTouched:
        Touched(job);
        break;
    }
    progress.Advance(0, 0);  // this thread may have had no task of its own
    if (progress.stopped()) return Status::Error(Code::kCancelled, "cancelled: out is undefined");
    return Status::Ok();
  }

 private:
  enum class Form : std::uint8_t { kPlanes, kFlat, kStrided, kTouched };

  struct Job {
    const Scratch scratch;
    Progress& progress;
    const int threads;
    const std::byte* const classes;
    float denominator_f32 = 1;
    double denominator_f64 = 1;
    const void* weight = nullptr;
    const std::byte* table = nullptr;
  };

  // Positions in a row: where they begin in each tensor, and their strides.
  struct Stretch {
    Axes::Offsets begin, step;
    std::int64_t count;
  };

  // One element for all positions.
  TensorLayout Constant() const {
    TensorLayout constant = op_.target;
    constant.strides.fill(0);
    return constant;
  }

  std::int64_t real_size() const { return op_.out.dtype == DType::kF64 ? 8 : 4; }

  void ChooseForm() {
    const std::int64_t P = axes_.inner();
    const bool side_by_side = axes_.inner_stride(kOut) == 1 || P == 1;
    const bool fits = size_ > 2 || targets_.class_bytes() <= 2;  // classes are compared in the width of an element
    if (op_.accumulate || op_.compact) {
      form_ = Form::kTouched;
    } else if (class_stride_ == 1 && (P == 1 || axes_.inner_stride(kOut) == C_)) {
      form_ = Form::kFlat, rows_form_ = true;
    } else if (side_by_side && class_stride_ == P && P * size_ < kPlaneBytes) {
      form_ = Form::kFlat;
    } else if (side_by_side && fits && P > 1) {
      form_ = Form::kPlanes;
    } else {
      form_ = Form::kStrided;
    }
  }

  template <class Real>
  void PrepareAs(Job& job) const {
    if (op_.reduction == Reduction::kMean) {
      LoadPositions(*op_.total_weight, Positions{}, 0, 1, &job.denominator_f64);
      job.denominator_f32 = static_cast<float>(job.denominator_f64);
    }
    if (op_.weight) {
      Real* const weight = reinterpret_cast<Real*>(job.scratch.Get(weight_).data());
      LoadPositions(*op_.weight, Flatten(*op_.weight, 1), 0, C_, weight);
      job.weight = weight;
    }
    if (!table_) return;
    std::byte* const table = job.scratch.Get(table_values_).data();
    // The values of positions 0, 1, ... whose classes are 0, 1, ...
    std::array<std::uint32_t, kPositionBlock> classes;
    const std::int64_t entries = op_.weight ? C_ : 1;
    for (std::int64_t begin = 0; begin < entries; begin += kPositionBlock) {
      const std::int64_t count = std::min(kPositionBlock, entries - begin);
      for (std::int64_t i = 0; i < count; ++i)
        classes[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(begin + i);
      values_({.classes = {reinterpret_cast<const std::byte*>(classes.data()), 4, 1, count},
               .weight = job.weight,
               .C = C_,
               .token_weight = {},
               .grad = Scalar(op_.grad_output),
               .denominator = Denominator(job),
               .values = table + begin * size_});
    }
    job.table = table;
  }

  void Prepare(Job& job) const { op_.out.dtype == DType::kF64 ? PrepareAs<double>(job) : PrepareAs<float>(job); }

  const void* Denominator(const Job& job) const {
    if (op_.reduction != Reduction::kMean) return nullptr;
    if (op_.out.dtype == DType::kF64) return &job.denominator_f64;
    return &job.denominator_f32;
  }

  static Operand Scalar(const ConstTensorView& tensor) {
    return {static_cast<const std::byte*>(tensor.data), tensor.dtype, 0};
  }
  static Operand At(const ConstTensorView& tensor, std::int64_t offset, std::int64_t step) {
    return {static_cast<const std::byte*>(tensor.data) + offset * SizeOf(tensor.dtype), tensor.dtype, step};
  }

  Stretch RunAt(std::int64_t outer) const {
    Stretch run{axes_.Begin(outer), {}, axes_.inner()};
    for (std::size_t t = 0; t < kTensors; ++t) run.step[t] = axes_.inner_stride(t);
    return run;
  }
  static Stretch Part(const Stretch& run, std::int64_t begin, std::int64_t count) {
    Stretch part = run;
    for (std::size_t t = 0; t < kTensors; ++t) part.begin[t] += begin * run.step[t];
    part.count = count;
    return part;
  }

  ClassRun ClassesOf(const Job& job, const Stretch& run) const {
    return {job.classes + run.begin[kClasses] * targets_.class_bytes(), targets_.class_bytes(), run.step[kClasses],
            run.count};
  }

  // The values of at most kPositionBlock positions, in the dtype that the function is for.
  void Values(const Job& job, const Stretch& run, ValueFunction function, void* values) const {
    function({.classes = ClassesOf(job, run),
              .weight = job.weight,
              .C = C_,
              .token_weight =
                  op_.token_weight ? At(*op_.token_weight, run.begin[kTokenWeight], run.step[kTokenWeight]) : Operand{},
              .grad = none_ ? At(op_.grad_output, run.begin[kGrad], run.step[kGrad]) : Scalar(op_.grad_output),
              .denominator = Denominator(job),
              .values = values});
  }

  std::byte* Out(std::int64_t offset) const { return static_cast<std::byte*>(op_.out.data) + offset * size_; }

  // Work is a block of positions of one run, and as many classes as make up a task; or several of them if runs are short.
  void Planes(Job& job) const {
    const std::int64_t P = axes_.inner(), block = std::min(P, C_ <= kFewClasses ? kPositionBlock : kPlaneRun / size_);
    const std::int64_t blocks = (P + block - 1) / block;
    // All classes of a block in one task, since each task reads the block's classes once more; fewer if that would leave
    // threads without work. Whole words of the bits that tell which classes a block has.
    std::int64_t classes = std::min(C_, kPlaneClasses);
    while (classes > 64 && axes_.outer() * blocks * ((C_ + classes - 1) / classes) < 8 * job.threads)
      classes = (classes / 2 + 63) / 64 * 64;
    const std::int64_t parts = (C_ + classes - 1) / classes;
    ForUnits(job, axes_.outer() * blocks * parts, block * classes * size_, [&](std::int64_t unit) {
      const std::int64_t part = unit % parts, b = unit / parts % blocks, outer = unit / parts / blocks;
      const std::int64_t first = b * block, count = std::min(block, P - first);
      const Stretch run = Part(RunAt(outer), first, count);
      alignas(kStreamAlign) std::byte values[kPlaneRun];
      for (std::int64_t at = 0; !table_ && at < count; at += kPositionBlock)
        Values(job, Part(run, at, std::min(kPositionBlock, count - at)), values_, values + at * size_);
      const std::int64_t first_class = part * classes, end_class = std::min(C_, first_class + classes);
      planes_({.classes = ClassesOf(job, run),
               .first_class = first_class,
               .end_class = end_class,
               .out = Out(run.begin[kOut]),
               .class_stride = class_stride_ * size_,
               .values = table_ ? nullptr : values,
               .table = job.table,
               .table_per_class = op_.weight.has_value(),
               .sparse = C_ > kFewClasses,
               .stream = stream_});
      return count * (end_class - first_class) * size_;
    });
  }

  // Memory without gaps: groups of C rows of P elements. Where a row has one position's classes (P = 1), a group is one
  // position; else it is one plane of each class.
  void Flat(Job& job) const {
    if (size_ == 8) return FlatAs<std::uint64_t>(job);
    if (size_ == 4) return FlatAs<std::uint32_t>(job);
    FlatAs<std::uint16_t>(job);
  }

  template <class U>
  void FlatAs(Job& job) const {
    const std::int64_t P = rows_form_ ? 1 : axes_.inner(), group = C_ * P;
    const bool joined = rows_form_ || (axes_.uniform_outer() && axes_.outer_stride(kOut) == group);
    const std::int64_t runs = rows_form_ || !joined ? axes_.outer() : 1;
    const std::int64_t groups = rows_form_ ? axes_.inner() : joined ? axes_.outer() : 1;
    // Tasks of whole groups where these are small, of parts of one where they are large.
    const bool short_rows = rows_form_ && C_ <= kShortRowClasses && kernels_.rows(size_) != nullptr;
    const std::int64_t elements = groups * group,
                       unit = short_rows ? std::max(kShortRows, kStreamAlign / size_) * C_ : 1;
    const std::int64_t task_elements = std::max<std::int64_t>(kTaskBytes / size_ / unit, 1) * unit;
    const std::int64_t tasks = (elements + task_elements - 1) / task_elements;
    ParallelFor(job.threads, runs * tasks, [&](std::int64_t task, int thread) {
      if (job.progress.stopped()) return;
      const std::int64_t run = task / tasks, begin = task % tasks * task_elements;
      const std::int64_t end = std::min(begin + task_elements, elements);
      const Stretch first = RunAt(joined && !rows_form_ ? 0 : run);
      const std::int64_t staged = short_rows ? ShortRows(job, first, begin, end) : begin;
      ForClassType(targets_.class_bytes(), [&]<class K>() { FlatRange<U, K>(job, first, P, staged, end); });
      if (stream_) hwy::FlushStream();
      job.progress.Advance((end - begin) * size_, thread);
    });
  }

  // As many elements from `begin`, which begins a row, as whole vectors of rows have; returns where they end.
  std::int64_t ShortRows(const Job& job, const Stretch& first, std::int64_t begin, std::int64_t end) const {
    if (stream_ && reinterpret_cast<std::uintptr_t>(Out(first.begin[kOut] + begin)) % kStreamAlign != 0) return begin;
    alignas(kStreamAlign) std::byte values[kPositionBlock * sizeof(float)];
    std::int64_t row = begin / C_;
    const std::int64_t last = row + (end / C_ - row) / kShortRows * kShortRows;
    while (row < last) {
      const Stretch run = Part(first, row, std::min(kPositionBlock, last - row));
      if (!table_) Values(job, run, values_, values);
      kernels_.rows(size_)({.classes = ClassesOf(job, run),
                            .C = C_,
                            .out = Out(run.begin[kOut]),
                            .values = table_ ? nullptr : values,
                            .table = job.table,
                            .table_per_class = op_.weight.has_value(),
                            .stream = stream_});
      row += run.count;
    }
    return last * C_;
  }

  // Elements [begin, end) of the groups that begin with `first`.
  template <class U, class K>
  void FlatRange(const Job& job, const Stretch& first, std::int64_t P, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t kStaged = kStagedBytes / static_cast<std::int64_t>(sizeof(U));
    const std::int64_t group = C_ * P;
    U* const out = reinterpret_cast<U*>(Out(first.begin[kOut]));
    alignas(kStreamAlign) U staged[kStaged];
    alignas(kStreamAlign) U values[kPositionBlock];
    std::array<std::uint16_t, kStaged> places;  // where something other than zero is
    std::memset(staged, 0, static_cast<std::size_t>(std::min(kStaged, end - begin)) * sizeof(U));
    for (std::int64_t at = begin; at < end;) {
      // Up to the end of a line; and at most so many positions that their values fit.
      const auto into_line = reinterpret_cast<std::uintptr_t>(out + at) % kStreamAlign / sizeof(U);
      std::int64_t stop = std::min(end, at + kStaged - static_cast<std::int64_t>(into_line));
      if (P == 1) stop = std::min(stop, (at / group + kPositionBlock) * group);
      const std::int64_t first_group = at / group, last_group = (stop - 1) / group;
      std::int64_t count = 0;
      for (std::int64_t g = first_group; g <= last_group; g = P == 1 ? last_group + 1 : g + 1) {
        const Stretch run = P == 1 ? Part(first, first_group, last_group + 1 - first_group) : Group(first, g);
        if (!table_) Values(job, run, values_, values);
        const K* const classes = reinterpret_cast<const K*>(ClassesOf(job, run).data);
        const U* const table = reinterpret_cast<const U*>(job.table);
        const std::int64_t origin = g * group - at;
        for (std::int64_t i = 0; i < run.count; ++i) {
          const K y = classes[i * run.step[kClasses]];
          const std::int64_t place = P == 1 ? origin + i * group + y : origin + y * P + i;
          if (y == kIgnored<K> || place < 0 || place >= stop - at) continue;
          staged[place] = table_ ? table[op_.weight ? y : 0] : values[i];
          places[static_cast<std::size_t>(count++)] = static_cast<std::uint16_t>(place);
        }
      }
      const std::int64_t bytes = (stop - at) * static_cast<std::int64_t>(sizeof(U));
      auto* const to = reinterpret_cast<std::byte*>(out + at);
      if (count == 0) {
        stream_ ? rows_.zero_stream(to, bytes) : rows_.zero(to, bytes);
      } else if (stream_) {
        rows_.copy_stream(reinterpret_cast<const std::byte*>(staged), to, bytes);
      } else {
        std::memcpy(to, staged, static_cast<std::size_t>(bytes));
      }
      for (std::int64_t i = 0; i < count; ++i) staged[places[static_cast<std::size_t>(i)]] = U{0};
      at = stop;
    }
  }

  // The positions of group g: a plane.
  Stretch Group(const Stretch& first, std::int64_t g) const {
    Stretch run = first;
    for (std::size_t t = 0; t < kTensors; ++t) run.begin[t] += g * axes_.outer_stride(t);
    return run;
  }

  // Calls work(unit), which returns the bytes it has written, for units of about `bytes` each, several to a task if they
  // are small.
  template <class F>
  void ForUnits(const Job& job, std::int64_t units, std::int64_t bytes, F&& work) const {
    const std::int64_t in_task = std::max<std::int64_t>(1, kTaskBytes / std::max<std::int64_t>(1, bytes));
    ParallelFor(job.threads, (units + in_task - 1) / in_task, [&](std::int64_t task, int thread) {
      if (job.progress.stopped()) return;
      std::int64_t done = 0;
      for (std::int64_t u = task * in_task; u < std::min(units, (task + 1) * in_task); ++u) done += work(u);
      if (stream_) hwy::FlushStream();
      job.progress.Advance(done, thread);
    });
  }

  // Calls work(positions) for blocks of positions of all runs.
  template <class F>
  void ForBlocks(const Job& job, std::int64_t bytes_per_position, F&& work) const {
    const std::int64_t P = axes_.inner(), block = std::min(P, kPositionBlock), blocks = (P + block - 1) / block;
    ForUnits(job, axes_.outer() * blocks, block * bytes_per_position, [&](std::int64_t unit) {
      const std::int64_t first = unit % blocks * block;
      const Stretch run = Part(RunAt(unit / blocks), first, std::min(block, P - first));
      work(run);
      return run.count * bytes_per_position;
    });
  }

  void Strided(Job& job) const {
    ForBlocks(job, C_ * size_, [&](const Stretch& run) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        std::byte* const to = Out(run.begin[kOut] + i * run.step[kOut]);
        if (class_stride_ == 1) {
          stream_ ? rows_.zero_stream(to, C_ * size_) : rows_.zero(to, C_ * size_);
        } else {
          for (std::int64_t c = 0; c < C_; ++c)
            std::memset(to + c * class_stride_ * size_, 0, static_cast<std::size_t>(size_));
        }
      }
      if (stream_) hwy::FlushStream();  // before the values, which may share lines with the zeros
      Touch<false>(job, run);
    });
  }

  void Touched(Job& job) const {
    ForBlocks(job, size_, [&](const Stretch& run) {
      if (op_.accumulate) return Touch<true>(job, run);
      Touch<false>(job, run);
    });
  }

  // The one element of each position; compact writes ignored positions too.
  template <bool kAccumulate>
  void Touch(const Job& job, const Stretch& run) const {
    ForDType(LossTypes{}, op_.out.dtype, [&]<class O>() {
      // What is added is rounded with the sum, not before.
      using Value = std::conditional_t<kAccumulate, AccumulatorOf<O>, O>;
      alignas(kStreamAlign) Value values[kPositionBlock];
      Values(job, run, kernels_.values(kDTypeOf<Value>), values);
      ForClassType(targets_.class_bytes(), [&]<class K>() {
        const K* const classes = reinterpret_cast<const K*>(ClassesOf(job, run).data);
        for (std::int64_t i = 0; i < run.count; ++i) {
          const K y = classes[i * run.step[kClasses]];
          const bool ignored = y == kIgnored<K>;
          if (ignored && (kAccumulate || !op_.compact)) continue;
          O& out = *reinterpret_cast<O*>(Out(run.begin[kOut] + i * run.step[kOut] + (ignored ? 0 : y * class_stride_)));
          if constexpr (kAccumulate) {
            out = Narrow<O>(Widen(out) + values[i]);
          } else {
            out = ignored ? Narrow<O>(AccumulatorOf<O>{0}) : values[i];
          }
        }
      });
    });
  }

  const NllLossBackward op_;
  const RowKernels& rows_;
  const NllKernels& kernels_;
  const std::int64_t N_, C_, size_;
  const bool none_;
  const std::int64_t class_stride_;
  const Axes axes_;
  const ValueFunction values_;
  const PlaneFunction planes_;
  const Targets targets_;
  Form form_ = Form::kStrided;
  bool rows_form_ = false, table_ = false, stream_ = false;
  Piece<std::byte> table_values_, weight_;
};

}  // namespace

std::string_view RefuseOnePass(const NllLossBackward& op, Isa) {
  return ClassBytes(op.C()) == 0 ? "more than 2^32 - 1 classes" : "";
}

std::unique_ptr<PlanBody> PlanOnePass(const NllLossBackward& op, Isa isa) {
  return std::make_unique<OnePass>(op, isa);
}

}  // namespace onehot::cpu
