// Sums of exponentials over blocks of classes, and how blocks are folded. Compiled once per instruction set, hence the
// guard that toggles.
#if defined(ONEHOT_CPU_SOFTMAX_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ONEHOT_CPU_SOFTMAX_SUMS_INL_H_
#undef ONEHOT_CPU_SOFTMAX_SUMS_INL_H_
#else
#define ONEHOT_CPU_SOFTMAX_SUMS_INL_H_
#endif

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

}  // namespace onehot::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ONEHOT_CPU_SOFTMAX_SUMS_INL_H_
