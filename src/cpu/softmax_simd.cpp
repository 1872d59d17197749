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
#include "cpu/softmax_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
#if HWY_TARGET == HWY_EMU128  // whose own maximum of lanes is never below the lowest finite number
  HWY_ALIGN float of_lanes[kClassLanes];
  hn::Store(largest, d, of_lanes);
  return *std::max_element(of_lanes, of_lanes + lanes);
#else
  return hn::GetLane(hn::MaxOfLanes(d, largest));
#endif
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
    if (task.classes != nullptr) {
      const std::uint32_t y = task.classes[i] - static_cast<std::uint32_t>(begin);
      if (y < n) task.target[i] = z[y];
    }
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
  if (task.argmax != nullptr) task.argmax[i] = static_cast<std::uint32_t>(argmax);
}

// ---- Planes: the lanes of a vector are positions that lie side by side.

HWY_INLINE std::int64_t LogitLanes() {
  return static_cast<std::int64_t>(hn::Lanes(LogitTag()));
}

// A block of classes of some positions: z of class begin + v and position at + i is z[v * padded + i].
struct Tile {
  float* z;
  std::int64_t at, count, padded;
  std::int64_t begin, n;
  alignas(64) float max[kStatisticsBatch];   // of z
  alignas(64) float best[kStatisticsBatch];  // z of argmax, so far
};

// Rows that are copied to a tile together, so that the maxima are loaded and stored once for all of them (measured, C = 150:
// 0.33 ns a logit, 0.35 one by one). Rows that are shorter than this come one by one (C = 1000, bf16, 256 bytes: 0.32 ns
// together and 0.26).
constexpr std::int64_t kRowsTogether = 4, kLongRow = 512;

// Copies the rows of kCount classes from v on to a tile.
template <bool kPlain, std::int64_t kCount, class T>
HWY_INLINE void FillRows(const SoftmaxTask& task, Tile& tile, const T* row, std::int64_t v) {
  const LogitTag d;
  const hn::RebindToUnsigned<LogitTag> du;
  const Cap cap(task.logits.softcap);
  const std::int64_t lanes = LogitLanes(), count = tile.count, padded = tile.padded, at = tile.at;
  const std::int64_t step = task.logits.class_step, whole = count - count % lanes;
  const std::int64_t ahead = std::max(kCount, RowsAhead<T>(count)) * step;
  const auto first_class = static_cast<std::uint32_t>(tile.begin + v);  // they fit: cpu/targets_simd.h
  float* const to = tile.z + v * padded;
  const bool look = !kPlain && task.argmax != nullptr;
  const auto copy = [&](std::int64_t i, auto load) ONEHOT_LOOP_ATTR {
    auto max = hn::Load(d, tile.max + i);
    for (std::int64_t k = 0; k < kCount; ++k) {
      auto z = load(row + k * step + i);
      if constexpr (!kPlain) z = Capped(d, z, cap);
      hn::Store(z, d, to + k * padded + i);
      max = hn::Max(z, max);
      if (!look) continue;
      const auto best = hn::Load(d, tile.best + i);
      const auto better = hn::Gt(z, best);
      hn::Store(hn::IfThenElse(better, z, best), d, tile.best + i);
      const auto argmax = hn::Load(du, task.argmax + at + i);
      const auto here = hn::Set(du, first_class + static_cast<std::uint32_t>(k));
      hn::Store(hn::IfThenElse(hn::RebindMask(du, better), here, argmax), du, task.argmax + at + i);
    }
    hn::Store(max, d, tile.max + i);
  };
  for (std::int64_t i = 0; i < whole; i += lanes) {
    for (std::int64_t k = 0; k < kCount; ++k) hwy::Prefetch(row + k * step + ahead + i);
    copy(i, [&](const T* from) ONEHOT_LOOP_ATTR { return LoadWide(d, from); });
  }
  if (whole < count) copy(whole, [&](const T* from) ONEHOT_LOOP_ATTR { return LoadSome(d, from, 1, count - whole); });
}

template <bool kPlain, class T>
HWY_NOINLINE void FillTile(const SoftmaxTask& task, Tile& tile) {
  const std::int64_t step = task.logits.class_step;
  const T* const row = reinterpret_cast<const T*>(task.logits.data) + tile.at + tile.begin * step;
  std::fill_n(tile.max, tile.padded, kMinusInfinity);
  if (tile.begin == 0) std::fill_n(tile.best, tile.padded, kMinusInfinity);
  std::int64_t v = 0;
  if (tile.count * static_cast<std::int64_t>(sizeof(T)) >= kLongRow)
    for (; v + kRowsTogether <= tile.n; v += kRowsTogether)
      FillRows<kPlain, kRowsTogether>(task, tile, row + v * step, v);
  for (; v < tile.n; ++v) FillRows<kPlain, 1>(task, tile, row + v * step, v);
}

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

// The sums of a tile.
template <bool kMoment, bool kLinear>
HWY_NOINLINE void SumTile(const SoftmaxTask& task, const Tile& tile) {
  const LogitTag d;
  const std::int64_t at = tile.at, padded = tile.padded, begin = tile.begin, n = tile.n;
  for (std::int64_t i = 0; i < padded; i += LogitLanes()) {
    const float* const z_of = tile.z + i;
    const auto max = hn::Load(d, tile.max + i);
    const auto origin = Origin(d, max);
    auto reference = hn::Zero(d);
    if constexpr (kLinear) reference = hn::Load(d, task.reference + at + i);
    const auto lane = [&](std::int64_t l) ONEHOT_LOOP_ATTR {
      LaneSums<LogitTag> sums{hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (std::int64_t v = l; v < n; v += kClassLanes) {
        const auto z = hn::Load(d, z_of + v * padded);
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
    const auto none = hn::Eq(max, hn::Set(d, kMinusInfinity));
    const Sums<LogitTag> block{max, hn::IfThenElse(none, hn::Mul(sums.sum, hn::Zero(d)), sums.sum), sums.moment};
    Sums<LogitTag> total = block;
    if (begin > 0) {
      total = {hn::Load(d, task.max + at + i), hn::Load(d, task.sum + at + i), hn::Zero(d)};
      if constexpr (kMoment) total.moment = hn::Load(d, task.moment + at + i);
      total.Fold(d, block);
    }
    hn::Store(total.max, d, task.max + at + i);
    hn::Store(total.sum, d, task.sum + at + i);
    if constexpr (kMoment) hn::Store(total.moment, d, task.moment + at + i);
    if constexpr (kLinear) hn::Store(hn::Add(hn::Load(d, task.linear + at + i), sums.linear), d, task.linear + at + i);
  }
}

// What is known once a tile is filled.
HWY_NOINLINE void LookAtTile(const SoftmaxTask& task, const Tile& tile, bool first_weights) {
  const LogitTag d;
  if (task.classes != nullptr) {
    const auto begin = static_cast<std::uint32_t>(tile.begin);
    for (std::int64_t i = 0; i < tile.count; ++i) {
      const std::uint32_t y = task.classes[tile.at + i] - begin;
      if (y < tile.n) task.target[tile.at + i] = tile.z[y * tile.padded + i];
    }
  }
  if (!first_weights) return;
  for (std::int64_t i = 0; i < tile.count; i += LogitLanes())
    hn::Store(Origin(d, hn::Load(d, tile.max + i)), d, task.reference + tile.at + i);
}

template <class T>
HWY_NOINLINE void PlaneStatistics(const SoftmaxTask& task) {
  const Logits& logits = task.logits;
  const bool plain = logits.softcap == 0 && task.argmax == nullptr;
  const std::int64_t batch = StatisticsBatch(logits.C), lanes = LogitLanes();
  Tile tile;
  tile.z = task.tile;
  for (tile.at = 0; tile.at < logits.count; tile.at += tile.count) {
    tile.count = std::min(batch, logits.count - tile.at);
    tile.padded = (tile.count + lanes - 1) / lanes * lanes;
    bool weighted = false;  // by classes so far
    for (tile.begin = 0; tile.begin < logits.C; tile.begin += kClassBlock) {
      tile.n = std::min(kClassBlock, logits.C - tile.begin);
      (plain ? FillTile<true, T> : FillTile<false, T>)(task, tile);
      const bool linear = task.linear != nullptr && HasWeight(task, tile.begin, tile.n);
      LookAtTile(task, tile, linear && !weighted);
      weighted = weighted || linear;
      if (task.moment != nullptr) {
        (linear ? SumTile<true, true> : SumTile<true, false>)(task, tile);
      } else {
        (linear ? SumTile<false, true> : SumTile<false, false>)(task, tile);
      }
    }
  }
}

template <class T>
void StatisticsOf(const SoftmaxTask& task) {
  const Logits& logits = task.logits;
  if (task.classes != nullptr) std::fill_n(task.target, logits.count, 0.0f);
  if (logits.planes()) {
    // What is left where there are no classes.
    std::fill_n(task.max, logits.count, kMinusInfinity);
    for (float* const zero : {task.sum, task.moment, task.linear, task.reference})
      if (zero != nullptr) std::fill_n(zero, logits.count, 0.0f);
    if (task.argmax != nullptr) std::fill_n(task.argmax, logits.count, 0u);
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
      task.argmax[i] = static_cast<std::uint32_t>(v);
      break;
    }
  }
}

void Statistics(const SoftmaxTask& task) {
  ForDType(Types<float, F16, BF16>{}, task.logits.dtype, [&]<class T>() HWY_ATTR { StatisticsOf<T>(task); });
}

void LogAll(const float* from, std::int64_t count, float* to) {
  ForColumns<float>(count,
                    [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(Log(d, hn::LoadU(d, from + i)), d, to + i); });
}

SoftmaxKernels SoftmaxTable() {
  return {Statistics, LogAll};
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
