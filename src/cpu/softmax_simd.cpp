#include "cpu/softmax_simd.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // compiles the rest of this file once per instruction set
#include "hwy/highway.h"

#include "cpu/logits-inl.h"

// For loops over vectors: a call would keep constants in memory (measured: 9.7 ns a vector, and 3.6 without).
// Not under the address sanitizer, whose checks would make minutes of compilation of it.
#undef ONEHOT_LOOP_ATTR
#if defined(__SANITIZE_ADDRESS__)
#define ONEHOT_LOOP_ATTR HWY_ATTR
#else
#define ONEHOT_LOOP_ATTR HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace onehot::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

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
template <class T>
HWY_INLINE float LoadBlock(const T* from, std::int64_t step, std::int64_t n, const Cap& cap, float* z) {
  const LogitTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, kMinusInfinity);
  const auto keep = [&](std::int64_t v, auto u) ONEHOT_LOOP_ATTR {
    const auto capped = Capped(d, u, cap);
    hn::Store(capped, d, z + v);
    return capped;
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

// Lane j with j + 8, then 4, 2, 1.
HWY_INLINE float FoldLanes(float* lanes) {
  for (std::int64_t width = kClassLanes / 2; width > 0; width /= 2)
    for (std::int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  return lanes[0];
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
    const float max = LoadBlock(from, logits.class_step, n, cap, z);
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
        const auto e = [&](std::int64_t v) ONEHOT_LOOP_ATTR { return Exp(d, hn::Sub(hn::Load(d, z + v), origin)); };
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
    const Sums<decltype(d1)> block{hn::Set(d1, max), hn::Set(d1, FoldLanes(sum)), hn::Set(d1, FoldLanes(moment))};
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
  alignas(64) PerPosition max, sum, moment, linear, reference, block_max, origin, best;
  alignas(64) std::uint32_t argmax[kStatisticsBatch];
  alignas(64) PerPosition sums[kClassLanes], moments[kClassLanes], linears[kClassLanes];
};

// Bytes of planes to have on the way: the latency of memory (100 ns) times what one core draws (some 40 GB/s) is 4 KB, and
// bursts want slack. Not much more: planes of images whose sides are powers of two all fall into the same few sets of a cache.
constexpr std::int64_t kAheadBytes = 6 << 10;

// Rows of planes to look ahead.
template <class T>
HWY_INLINE std::int64_t RowsAhead(std::int64_t count) {
  return std::max<std::int64_t>(1, kAheadBytes / (count * static_cast<std::int64_t>(sizeof(T))));
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
  // Lanes l and l + width of every position; those from n on are empty, and have not been written.
  const auto fold = [&](PerPosition* sums, std::int64_t n) HWY_ATTR {
    for (std::int64_t width = kClassLanes / 2; width > 0; width /= 2)
      for (std::int64_t l = 0; l < width && l + width < n; ++l)
        for_all([&](std::int64_t i) HWY_ATTR {
          hn::Store(hn::Add(hn::Load(d, sums[l] + i), hn::Load(d, sums[l + width] + i)), d, sums[l] + i);
        });
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
    for (std::int64_t v = 0; v < n; ++v) {
      const T* const row = block + v * logits.class_step;
      float* const to = task.tile + v * padded;
      const auto class_here = hn::Set(du, static_cast<std::uint32_t>(begin + v));
      const auto look = [&](std::int64_t i, auto u) ONEHOT_LOOP_ATTR {
        const auto z = Capped(d, u, cap);
        hn::Store(z, d, to + i);
        hn::Store(hn::Max(z, hn::Load(d, s.block_max + i)), d, s.block_max + i);
        if (task.argmax == nullptr) return;
        const auto best = hn::Load(d, s.best + i);
        const auto better = hn::Gt(z, best);
        hn::Store(hn::IfThenElse(better, z, best), d, s.best + i);
        hn::Store(hn::IfThenElse(hn::RebindMask(du, better), class_here, hn::Load(du, s.argmax + i)), du, s.argmax + i);
      };
      for (std::int64_t i = 0; i < whole; i += lanes) {
        hwy::Prefetch(row + ahead + i);
        look(i, LoadWide(d, row + i));
      }
      if (whole < count) look(whole, LoadSome(d, row + whole, 1, count - whole));
    }
    const bool starts = task.linear != nullptr && !weighted && HasWeight(task, begin, n);
    weighted = weighted || starts;
    for_all([&](std::int64_t i) HWY_ATTR {
      const auto origin = Origin(d, hn::Load(d, s.block_max + i));
      hn::Store(origin, d, s.origin + i);
      if (starts) hn::Store(origin, d, s.reference + i);
    });
    for (std::int64_t v = 0; v < n; ++v) {
      const float* const from = task.tile + v * padded;
      const std::int64_t l = v % kClassLanes;
      const bool first = v < kClassLanes;
      const float w = task.weight == nullptr ? 1.0f : task.weight[begin + v];
      const auto add = [&](PerPosition* sums, std::int64_t i, auto term) ONEHOT_LOOP_ATTR {
        hn::Store(first ? term : hn::Add(hn::Load(d, sums[l] + i), term), d, sums[l] + i);
      };
      for_all([&](std::int64_t i) ONEHOT_LOOP_ATTR {
        const auto z = hn::Load(d, from + i);
        const auto x = hn::Sub(z, hn::Load(d, s.origin + i));
        const auto e = Exp(d, x);
        add(s.sums, i, e);
        if (task.moment != nullptr) add(s.moments, i, Moment(d, e, x));
        if (task.linear != nullptr)
          add(s.linears, i, w == 0 ? hn::Zero(d) : hn::Mul(hn::Set(d, w), hn::Sub(z, hn::Load(d, s.reference + i))));
      });
    }
    fold(s.sums, n);
    if (task.moment != nullptr) fold(s.moments, n);
    if (task.linear != nullptr) {
      fold(s.linears, n);
      for_all([&](std::int64_t i) HWY_ATTR {
        hn::Store(hn::Add(hn::Load(d, s.linear + i), hn::Load(d, s.linears[0] + i)), d, s.linear + i);
      });
    }
    for_all([&](std::int64_t i) HWY_ATTR {
      const Sums<LogitTag> one{hn::Load(d, s.block_max + i), hn::Load(d, s.sums[0] + i),
                               task.moment != nullptr ? hn::Load(d, s.moments[0] + i) : hn::Zero(d)};
      Sums<LogitTag> total = one;
      if (begin > 0) {
        total = {hn::Load(d, s.max + i), hn::Load(d, s.sum + i), hn::Load(d, s.moment + i)};
        total.Fold(d, one);
      }
      hn::Store(total.max, d, s.max + i);
      hn::Store(total.sum, d, s.sum + i);
      hn::Store(total.moment, d, s.moment + i);
    });
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

// ---- Gradient. Every element by itself, so vectors may begin anywhere.

// The lanes of a vector are positions (planes) or classes (rows): what differs between them is where operands come from.
template <class D>
struct Operands {
  hn::Vec<D> max, log_sum, alpha, beta, h, entropy, gamma, weight;
};

template <bool kPlain, class D, class M>
HWY_INLINE hn::Vec<D> GradientOf(D d, hn::Vec<D> z, M hit, const Operands<D>& o, const SoftmaxGradientTask& task,
                                 const Cap& cap) {
  const auto x = hn::Sub(hn::Sub(z, o.max), o.log_sum);
  const auto p = Exp(d, x);
  auto dz = hn::Mul(o.alpha, hn::Sub(p, hn::IfThenElseZero(hit, hn::Set(d, 1.0f))));
  if constexpr (!kPlain) {
    if (task.h != nullptr) {
      const auto factor = hn::Sub(o.beta, hn::Mul(o.h, hn::Add(x, o.entropy)));
      dz = hn::Add(dz, hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, factor)));
    } else {
      dz = hn::Add(dz, hn::Mul(p, o.beta));
    }
    if (task.gamma != nullptr) dz = hn::Sub(dz, hn::Mul(o.gamma, o.weight));
    if (cap.on) {
      const auto ratio = hn::Mul(z, hn::Set(d, cap.inverse));
      const auto slope = hn::Sub(hn::Set(d, 1.0f), hn::Mul(ratio, ratio));
      dz = hn::IfThenZeroElse(hn::Eq(z, hn::Set(d, kMinusInfinity)), hn::Mul(dz, slope));
    }
  }
  return dz;
}

// Calls f(i, n, whole, stream) for [0, count): n elements from i on, whole vectors of them if `whole`, whole lines that may
// go past the caches if `stream`, both std::bool_constant.
template <class O, class F>
HWY_INLINE void ForVectors(std::int64_t count, const O* out, bool stream, std::int64_t lanes, F&& f) {
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  std::int64_t i = 0;
  if (stream) {
    const auto misaligned = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(out) & (kStreamAlign - 1));
    const std::int64_t head = std::min(count, misaligned / static_cast<std::int64_t>(sizeof(O)));
    for (; i < head; i += lanes) f(i, std::min(lanes, head - i), kNo, kNo);
    i = head;
    constexpr std::int64_t kLine = kStreamAlign / static_cast<std::int64_t>(sizeof(O));
    const std::int64_t lines = i + (count - i) / kLine * kLine;
    for (; i < lines; i += lanes) f(i, lanes, kYes, kYes);
  }
  for (; i + lanes <= count; i += lanes) f(i, lanes, kYes, kNo);
  if (i < count) f(i, count - i, kNo, kNo);
}

template <class T, class O, bool kPlain>
HWY_NOINLINE void PlaneGradient(const SoftmaxGradientTask& task) {
  const LogitTag d;
  const hn::RebindToUnsigned<LogitTag> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Logits& logits = task.logits;
  const Cap cap(logits.softcap);
  const std::int64_t ahead = RowsAhead<T>(logits.count) * logits.class_step;
  for (std::int64_t v = 0; v < logits.C; ++v) {
    const T* const row = reinterpret_cast<const T*>(logits.data) + v * logits.class_step;
    O* const out = reinterpret_cast<O*>(task.out) + v * task.out_class_step;
    const auto class_here = hn::Set(du, static_cast<std::uint32_t>(v));
    const auto weight = hn::Set(d, task.weight == nullptr ? 1.0f : task.weight[v]);
    ForVectors(logits.count, out, task.stream, lanes,
               [&](std::int64_t i, std::int64_t n, auto whole, auto stream) ONEHOT_LOOP_ATTR {
                 constexpr bool kWhole = decltype(whole)::value;
                 if constexpr (kWhole) hwy::Prefetch(row + ahead + i);
                 const auto operand = [&](const float* from) ONEHOT_LOOP_ATTR {
                   if (from == nullptr) return hn::Zero(d);
                   return kWhole ? hn::LoadU(d, from + i) : LoadSome(d, from + i, 1, n);
                 };
                 HWY_ALIGN std::uint32_t some[kClassLanes] = {};
                 if constexpr (!kWhole) std::copy_n(task.classes + i, n, some);
                 const auto y = kWhole ? hn::LoadU(du, task.classes + i) : hn::Load(du, some);
                 const auto z = Capped(d, kWhole ? LoadWide(d, row + i) : LoadSome(d, row + i, 1, n), cap);
                 Operands<LogitTag> o{operand(task.max), operand(task.log_sum), operand(task.alpha), hn::Zero(d),
                                      hn::Zero(d),       hn::Zero(d),           hn::Zero(d),         weight};
                 if constexpr (!kPlain) {
                   o.beta = operand(task.beta), o.h = operand(task.h), o.entropy = operand(task.entropy);
                   o.gamma = operand(task.gamma);
                 }
                 auto dz = GradientOf<kPlain>(d, z, hn::RebindMask(d, hn::Eq(y, class_here)), o, task, cap);
                 dz = hn::IfThenZeroElse(hn::RebindMask(d, hn::Eq(y, hn::Set(du, ~std::uint32_t{0}))), dz);
                 if constexpr (kWhole) {
                   StoreNarrow(dz, d, out + i, decltype(stream)::value);
                 } else {
                   StoreSome(dz, d, out + i, 1, n);
                 }
               });
  }
}

template <class T, class O, bool kPlain>
HWY_NOINLINE void RowGradient(const SoftmaxGradientTask& task, std::int64_t i) {
  const LogitTag d;
  const hn::RebindToUnsigned<LogitTag> du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Logits& logits = task.logits;
  const Cap cap(logits.softcap);
  const T* const row = reinterpret_cast<const T*>(logits.data) + i * logits.position_step;
  O* const out = reinterpret_cast<O*>(task.out) + i * task.out_position_step;
  const bool dense_in = logits.class_step == 1, dense_out = task.out_class_step == 1;
  const auto operand = [&](const float* from) HWY_ATTR { return hn::Set(d, from == nullptr ? 0.0f : from[i]); };
  Operands<LogitTag> o{operand(task.max), operand(task.log_sum), operand(task.alpha), operand(task.beta),
                       operand(task.h),   operand(task.entropy), operand(task.gamma), hn::Set(d, 1.0f)};
  const std::uint32_t y = task.classes[i];
  const bool ignored = y == ~std::uint32_t{0};
  const auto first_classes = hn::Iota(du, 0);  // once: it goes through memory
  ForVectors(logits.C, out, task.stream && dense_out, lanes,
             [&](std::int64_t v, std::int64_t n, auto whole, auto stream) ONEHOT_LOOP_ATTR {
               constexpr bool kWhole = decltype(whole)::value;
               auto dz = hn::Zero(d);
               if (!ignored) {
                 const auto u = kWhole && dense_in ? LoadWide(d, row + v)
                                                   : LoadSome(d, row + v * logits.class_step, logits.class_step, n);
                 const auto here = hn::Add(first_classes, hn::Set(du, static_cast<std::uint32_t>(v)));
                 if constexpr (!kPlain) {
                   if (task.weight != nullptr)
                     o.weight = kWhole ? hn::LoadU(d, task.weight + v) : LoadSome(d, task.weight + v, 1, n);
                 }
                 dz = GradientOf<kPlain>(d, Capped(d, u, cap), hn::RebindMask(d, hn::Eq(here, hn::Set(du, y))), o, task,
                                         cap);
               }
               if (kWhole && dense_out) {
                 StoreNarrow(dz, d, out + v, decltype(stream)::value);
               } else {
                 StoreSome(dz, d, out + v * task.out_class_step, task.out_class_step, n);
               }
             });
}

template <class T, class O, bool kPlain>
void GradientAs(const SoftmaxGradientTask& task) {
  const Logits& logits = task.logits;
  if (logits.planes() && task.out_position_step == 1) return PlaneGradient<T, O, kPlain>(task);
  for (std::int64_t i = 0; i < logits.count; ++i) RowGradient<T, O, kPlain>(task, i);
}

void Gradient(const SoftmaxGradientTask& task) {
  const bool plain = task.beta == nullptr && task.h == nullptr && task.gamma == nullptr && task.logits.softcap == 0;
  ForDType(Types<float, F16, BF16>{}, task.logits.dtype, [&]<class T>() HWY_ATTR {
    if (task.out_dtype == task.logits.dtype)
      return plain ? GradientAs<T, T, true>(task) : GradientAs<T, T, false>(task);
    plain ? GradientAs<T, float, true>(task) : GradientAs<T, float, false>(task);
  });
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
  return {Statistics, Gradient, CapAll, LogAll};
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
