#include "cpu/softmax_simd.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "cpu/ordered_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/logits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What z is measured from while exponentials are summed up: the maximum, but 0 where all classes are at -infinity, whose
// distance from each other is no number.
template <class D>
HWY_INLINE hn::Vec<D> Origin(D d, hn::Vec<D> max) {
  return hn::IfThenZeroElse(hn::Eq(max, hn::Set(d, kMinusInfinity)), max);
}

// e^x x, where x = -infinity counts as 0.
template <class D>
HWY_INLINE hn::Vec<D> Moment(D d, hn::Vec<D> e, hn::Vec<D> x) {
  return hn::IfThenZeroElse(hn::Eq(e, hn::Zero(d)), hn::Mul(e, x));
}

// Sums of one block of classes folded into those of the blocks before it.
template <class D>
struct Sums {
  hn::Vec<D> max, sum, moment;

  HWY_INLINE void Fold(D d, const Sums& block) {
    const auto both = hn::Max(max, block.max);
    const auto origin = Origin(d, both);
    const auto mine = hn::Sub(max, origin), its = hn::Sub(block.max, origin);
    const auto r = Exp(d, mine), s = Exp(d, its);
    const auto moved = hn::Add(moment, hn::IfThenZeroElse(hn::Eq(r, hn::Zero(d)), hn::Mul(mine, sum)));
    const auto its_moved = hn::Add(block.moment, hn::IfThenZeroElse(hn::Eq(s, hn::Zero(d)), hn::Mul(its, block.sum)));
    moment = hn::Add(hn::Mul(moved, r), hn::Mul(its_moved, s));
    sum = hn::Add(hn::Mul(sum, r), hn::Mul(block.sum, s));
    max = both;
  }
};

// ---- Rows: the lanes of a vector are classes. Takes any strides.

// A block of z side by side, padded with -infinity to whole kClassLanes; and the largest of them.
template <bool kCapped, class T>
HWY_INLINE float LoadBlock(const T* from, std::int64_t step, std::int64_t n, const Cap& cap, float* z) {
  const LogitTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, kMinusInfinity);
  const auto keep = [&](std::int64_t v, auto u) ONEHOT_LOOP_ATTR {
    if constexpr (kCapped) u = Capped(d, u, cap);
    hn::Store(u, d, z + v);
    return u;
  };
  std::int64_t v = 0;
  if (step == 1)
    for (; v + lanes <= n; v += lanes) largest = hn::Max(keep(v, LoadWide(d, from + v)), largest);
  const std::int64_t whole = v;
  for (; v < n; v += lanes) keep(v, LoadSome(d, from + v * step, step, std::min(lanes, n - v)));
  for (v = n; v % kClassLanes != 0; ++v) z[v] = kMinusInfinity;
  for (v = whole; v < n; v += lanes) largest = hn::Max(hn::Load(d, z + v), largest);
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Whether a block has a class that `linear` does not leave out.
inline bool HasWeight(const SoftmaxTask& task, std::int64_t begin, std::int64_t n) {
  return task.weight == nullptr ||
         std::any_of(task.weight + begin, task.weight + begin + n, [](float w) { return w != 0; });
}

template <class T>
HWY_NOINLINE void RowStatistics(const SoftmaxTask& task, std::int64_t i) {
  const LogitTag d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Logits& logits = task.logits;
  const Cap cap(logits.softcap);
  const T* const row = reinterpret_cast<const T*>(logits.data) + i * logits.position_step;
  HWY_ALIGN float z[kClassBlock], sum[kClassLanes], moment[kClassLanes], linear[kClassLanes];
  Sums<decltype(d1)> total{hn::Set(d1, kMinusInfinity), hn::Zero(d1), hn::Zero(d1)};
  float reference = 0, total_linear = 0;
  bool weighted = false;  // by classes so far
  std::int64_t argmax = 0;
  for (std::int64_t begin = 0; begin < logits.C; begin += kClassBlock) {
    const std::int64_t n = std::min(kClassBlock, logits.C - begin),
                       padded = (n + kClassLanes - 1) / kClassLanes * kClassLanes;
    const T* const from = row + begin * logits.class_step;
    const float max = cap.on ? LoadBlock<true>(from, logits.class_step, n, cap, z)
                             : LoadBlock<false>(from, logits.class_step, n, cap, z);
    // What comes next in memory, to be fetched while exponentials keep the core busy.
    const T* const next = begin + n < logits.C ? from + n : row + logits.position_step;
    if (task.argmax != nullptr && max > hn::GetLane(total.max)) {
      const auto wanted = hn::Set(d, max);
      for (std::int64_t v = 0; v < padded; v += lanes) {
        const std::intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::Load(d, z + v), wanted));
        if (lane < 0) continue;
        argmax = begin + v + lane;
        break;
      }
    }

    const auto origin = hn::Set(d, max == kMinusInfinity ? 0.0f : max);
    for (std::int64_t l = 0; l < kClassLanes; ++l) sum[l] = moment[l] = linear[l] = 0;
    // Vectors of the same lanes; sums stay in registers.
    for (std::int64_t l = 0; l < kClassLanes; l += lanes) {
      auto sums = hn::Zero(d);
      if (task.moment == nullptr) {
        const auto e = [&](std::int64_t v) ONEHOT_LOOP_ATTR { return ExpTerm(d, hn::Sub(hn::Load(d, z + v), origin)); };
        std::int64_t v = l;
        // Four at a time, so that their chains of operations overlap.
        for (; v + 3 * kClassLanes < padded; v += 4 * kClassLanes) {
          for (std::int64_t k = 0; l == 0 && k < 4; ++k) hwy::Prefetch(next + v + k * kClassLanes);
          const auto e0 = e(v), e1 = e(v + kClassLanes), e2 = e(v + 2 * kClassLanes), e3 = e(v + 3 * kClassLanes);
          sums = hn::Add(hn::Add(hn::Add(hn::Add(sums, e0), e1), e2), e3);
        }
        for (; v < padded; v += kClassLanes) sums = hn::Add(sums, e(v));
      } else {
        auto moments = hn::Zero(d);
        for (std::int64_t v = l; v < padded; v += kClassLanes) {
          const auto x = hn::Sub(hn::Load(d, z + v), origin);
          const auto e = Exp(d, x);
          sums = hn::Add(sums, e);
          moments = hn::Add(moments, Moment(d, e, x));
        }
        hn::Store(moments, d, moment + l);
      }
      hn::Store(sums, d, sum + l);
    }
    if (task.linear != nullptr && HasWeight(task, begin, n)) {
      if (!weighted) reference = max == kMinusInfinity ? 0.0f : max;
      weighted = true;
      for (std::int64_t v = 0; v < n; ++v) {
        const float w = task.weight == nullptr ? 1.0f : task.weight[begin + v];
        if (w != 0) linear[v % kClassLanes] += w * (z[v] - reference);
      }
      total_linear += FoldLanes(linear);
    }
    // Where all classes are at -infinity, terms that should be 0 have nothing larger beside them. NaN stays.
    const float block_sum = FoldLanes(sum) * (max == kMinusInfinity ? 0.0f : 1.0f);
    const Sums<decltype(d1)> block{hn::Set(d1, max), hn::Set(d1, block_sum), hn::Set(d1, FoldLanes(moment))};
    if (begin == 0) {
      total = block;
    } else {
      total.Fold(d1, block);
    }
  }
  task.max[i] = hn::GetLane(total.max);
  task.sum[i] = hn::GetLane(total.sum);
  if (task.moment != nullptr) task.moment[i] = hn::GetLane(total.moment);
  if (task.linear != nullptr) {
    task.reference[i] = reference;
    task.linear[i] = total_linear;
  }
  if (task.argmax != nullptr) task.argmax[i] = argmax;
}

// ---- Planes: the lanes of a vector are positions that lie side by side.

using PerPosition = float[kStatisticsBatch];

struct PlaneState {
  alignas(64) PerPosition max, sum, moment, linear, reference, block_max, best;
  alignas(64) std::uint32_t argmax[kStatisticsBatch];
};

// lane(0) + ... + lane(kClassLanes - 1) in the order of FoldLanes. Lanes from n on are empty.
template <std::int64_t kWidth = 1, class F>
HWY_INLINE auto FoldOf(std::int64_t n, F&& lane, std::int64_t l = 0) {
  if constexpr (kWidth == kClassLanes) {
    return lane(l);
  } else {
    const auto low = FoldOf<2 * kWidth>(n, lane, l);
    if (l + kWidth >= n) return low;
    return low + FoldOf<2 * kWidth>(n, lane, l + kWidth);
  }
}

// Terms of one lane of one vector of positions.
template <class D>
struct LaneSums {
  hn::Vec<D> sum, moment, linear;

  HWY_INLINE friend LaneSums operator+(const LaneSums& a, const LaneSums& b) {
    return {hn::Add(a.sum, b.sum), hn::Add(a.moment, b.moment), hn::Add(a.linear, b.linear)};
  }
};

// The sums of n classes, whose z are rows of `padded` numbers.
template <bool kMoment, bool kLinear>
HWY_NOINLINE void SumTile(const SoftmaxTask& task, std::int64_t begin, std::int64_t n, std::int64_t padded,
                          PlaneState& s) {
  const LogitTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < padded; i += lanes) {
    const auto block_max = hn::Load(d, s.block_max + i);
    const auto origin = Origin(d, block_max), reference = hn::Load(d, s.reference + i);
    const auto lane = [&](std::int64_t l) ONEHOT_LOOP_ATTR {
      LaneSums<LogitTag> sums{hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::int64_t v = l; v < n; v += kClassLanes) {
        const auto z = hn::Load(d, task.tile + v * padded + i);
        const auto x = hn::Sub(z, origin);
        const auto e = kMoment ? Exp(d, x) : ExpTerm(d, x);
        sums.sum = hn::Add(sums.sum, e);
        if constexpr (kMoment) sums.moment = hn::Add(sums.moment, Moment(d, e, x));
        if constexpr (kLinear) {
          const float w = task.weight == nullptr ? 1.0f : task.weight[begin + v];
          if (w != 0) sums.linear = hn::Add(sums.linear, hn::Mul(hn::Set(d, w), hn::Sub(z, reference)));
        }
      }
      return sums;
    };
    const LaneSums<LogitTag> sums = FoldOf(n, lane);
    // Where all classes are at -infinity, terms that should be 0 have nothing larger beside them. NaN stays.
    const auto none = hn::Eq(block_max, hn::Set(d, kMinusInfinity));
    const Sums<LogitTag> block{block_max, hn::IfThenElse(none, hn::Mul(sums.sum, hn::Zero(d)), sums.sum), sums.moment};
    Sums<LogitTag> total = block;
    if (begin > 0) {
      total = {hn::Load(d, s.max + i), hn::Load(d, s.sum + i), hn::Load(d, s.moment + i)};
      total.Fold(d, block);
    }
    hn::Store(total.max, d, s.max + i);
    hn::Store(total.sum, d, s.sum + i);
    hn::Store(total.moment, d, s.moment + i);
    hn::Store(hn::Add(hn::Load(d, s.linear + i), sums.linear), d, s.linear + i);
  }
}

template <class T>
HWY_NOINLINE void PlaneStatistics(const SoftmaxTask& task) {
  const LogitTag d;
  const hn::RebindToUnsigned<LogitTag> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Logits& logits = task.logits;
  const Cap cap(logits.softcap);
  const std::int64_t count = logits.count, whole = count - count % lanes, padded = (count + lanes - 1) / lanes * lanes;
  const std::int64_t ahead = RowsAhead<T>(count) * logits.class_step;
  PlaneState s;
  const auto for_all = [&](auto&& f) ONEHOT_LOOP_ATTR {
    for (std::int64_t i = 0; i < count; i += lanes) f(i);
  };
  for_all([&](std::int64_t i) HWY_ATTR {
    hn::Store(hn::Set(d, kMinusInfinity), d, s.best + i);
    hn::Store(hn::Zero(du), du, s.argmax + i);  // classes fit: cpu/targets_simd.h
    // What is left where there are no classes.
    hn::Store(hn::Set(d, kMinusInfinity), d, s.max + i);
    for (float* const zero : {s.sum, s.moment, s.linear, s.reference}) hn::Store(hn::Zero(d), d, zero + i);
  });
  bool weighted = false;  // by classes so far
  for (std::int64_t begin = 0; begin < logits.C; begin += kClassBlock) {
    const std::int64_t n = std::min(kClassBlock, logits.C - begin);
    const T* const block = reinterpret_cast<const T*>(logits.data) + begin * logits.class_step;
    for_all([&](std::int64_t i) HWY_ATTR { hn::Store(hn::Set(d, kMinusInfinity), d, s.block_max + i); });
    const auto fill = [&](auto plain) ONEHOT_LOOP_ATTR {
      constexpr bool kPlain = decltype(plain)::value;
      for (std::int64_t v = 0; v < n; ++v) {
        const T* const row = block + v * logits.class_step;
        float* const to = task.tile + v * padded;
        const auto class_here = hn::Set(du, static_cast<std::uint32_t>(begin + v));
        const auto look = [&](std::int64_t i, auto z) ONEHOT_LOOP_ATTR {
          if constexpr (!kPlain) z = Capped(d, z, cap);
          hn::Store(z, d, to + i);
          hn::Store(hn::Max(z, hn::Load(d, s.block_max + i)), d, s.block_max + i);
          if (kPlain || task.argmax == nullptr) return;
          const auto best = hn::Load(d, s.best + i);
          const auto better = hn::Gt(z, best);
          hn::Store(hn::IfThenElse(better, z, best), d, s.best + i);
          const auto argmax = hn::Load(du, s.argmax + i);
          hn::Store(hn::IfThenElse(hn::RebindMask(du, better), class_here, argmax), du, s.argmax + i);
        };
        for (std::int64_t i = 0; i < whole; i += lanes) {
          hwy::Prefetch(row + ahead + i);
          look(i, LoadWide(d, row + i));
        }
        if (whole < count) look(whole, LoadSome(d, row + whole, 1, count - whole));
      }
    };
    if (cap.on || task.argmax != nullptr) {
      fill(std::false_type{});
    } else {
      fill(std::true_type{});
    }
    const bool linear = task.linear != nullptr && HasWeight(task, begin, n);
    if (linear && !weighted)
      for_all([&](std::int64_t i) HWY_ATTR { hn::Store(Origin(d, hn::Load(d, s.block_max + i)), d, s.reference + i); });
    weighted = weighted || linear;
    if (task.moment != nullptr) {
      (linear ? SumTile<true, true> : SumTile<true, false>)(task, begin, n, padded, s);
    } else {
      (linear ? SumTile<false, true> : SumTile<false, false>)(task, begin, n, padded, s);
    }
  }
  std::copy_n(s.max, count, task.max);
  std::copy_n(s.sum, count, task.sum);
  if (task.moment != nullptr) std::copy_n(s.moment, count, task.moment);
  if (task.linear != nullptr) {
    std::copy_n(s.reference, count, task.reference);
    std::copy_n(s.linear, count, task.linear);
  }
  if (task.argmax != nullptr) std::copy_n(s.argmax, count, task.argmax);
}

template <class T>
void StatisticsOf(const SoftmaxTask& task) {
  const Logits& logits = task.logits;
  if (logits.planes()) {
    PlaneStatistics<T>(task);
  } else {
    for (std::int64_t i = 0; i < logits.count; ++i) RowStatistics<T>(task, i);
  }
  if (task.argmax == nullptr) return;
  for (std::int64_t i = 0; i < logits.count; ++i) {
    if (task.sum[i] == task.sum[i]) continue;
    // A NaN, or +infinity less itself: a NaN among the classes is larger than all of them.
    const T* const row = reinterpret_cast<const T*>(logits.data) + i * logits.position_step;
    for (std::int64_t v = 0; v < logits.C; ++v) {
      const auto z = Widen(row[v * logits.class_step]);
      if (z == z) continue;
      task.argmax[i] = v;
      break;
    }
  }
}

void Statistics(const SoftmaxTask& task) {
  ForDType(Types<float, F16, BF16>{}, task.logits.dtype, [&]<class T>() HWY_ATTR { StatisticsOf<T>(task); });
}

void CapAll(const float* from, std::int64_t count, float softcap, float* to) {
  const Cap cap(softcap);
  ForColumns<float>(
      count, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(Capped(d, hn::LoadU(d, from + i), cap), d, to + i); });
}

void LogAll(const float* from, std::int64_t count, float* to) {
  ForColumns<float>(count,
                    [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(Log(d, hn::LoadU(d, from + i)), d, to + i); });
}

SoftmaxKernels SoftmaxTable() {
  return {Statistics, CapAll, LogAll};
}

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "cpu/isa.h"

namespace onehot::cpu {
HWY_EXPORT(SoftmaxTable);

const SoftmaxKernels& SoftmaxKernelsFor(Isa isa) {
  static const auto tables = ForEachInstructionSet([](Isa each) { return ONEHOT_DISPATCH(SoftmaxTable, each)(); });
  return tables[static_cast<std::size_t>(isa)];
}

}  // namespace onehot::cpu
#endif
