// Loops over registers have to be unrolled, also where the build asks for -O2 only: a third of the speed otherwise.
#ifndef ONEHOT_CPU_UNROLL_H_
#define ONEHOT_CPU_UNROLL_H_

#if defined(__clang__)
#define ONEHOT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ONEHOT_UNROLL _Pragma("GCC unroll 16")
#endif

#endif  // ONEHOT_CPU_UNROLL_H_
