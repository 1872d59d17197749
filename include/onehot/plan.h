// A plan is a checked problem together with the implementation that will run it.
//
//   onehot::EmbeddingBackward problem{...};
//   onehot::Result<onehot::Plan> plan = onehot::Prepare(problem);
//   if (!plan.ok()) return Complain(plan.status().message());
//   onehot::Status status = plan->Run();
//
// Prepare reads shapes, dtypes and strides, never data. The plan keeps the addresses in the problem; the memory behind
// them is read and written by Run alone.
//
// Environment, read each time a plan is made:
//   ONEHOT_LOG=1           prints to stderr which implementation was taken, and why those before it refused
//   ONEHOT_FORCE=NAME      takes the implementation of that name, or fails with the sentence it refuses with
//   ONEHOT_MAX_ISA=NAME    uses no instruction set beyond NAME (the names that `onehot info` prints)
#ifndef ONEHOT_PLAN_H_
#define ONEHOT_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "onehot/export.h"
#include "onehot/status.h"

namespace onehot {

struct RunOptions {
  // Threads to use at most; 0 means what OpenMP would use (OMP_NUM_THREADS, else the CPUs this process may use).
  // Small problems use one. The result has the same bits for every value.
  int threads = 0;

  // Called on the thread that called Run, now and then, with work done so far and in all (in bytes moved). Returning
  // false stops the run: it returns kCancelled, and what the outputs hold is undefined.
  std::function<bool(std::int64_t done, std::int64_t total)> progress;
};

// One line of the list of implementations as it was walked for a plan.
struct Considered {
  std::string_view implementation;
  std::string_view refusal;  // empty for the one that was taken
};

// What a plan runs on, as implementations of an operator see it. Internal; here because Plan holds one.
class PlanBody;

class ONEHOT_API Plan {
 public:
  explicit Plan(std::unique_ptr<PlanBody> body);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  std::string_view implementation() const;   // "cpu:grouped"
  std::string_view instruction_set() const;  // "AVX3_DL"; empty where none is chosen at run time

  // Those before the one taken, each with its reason, then the one taken.
  std::span<const Considered> considered() const;

  // Bytes of memory the operator has to read and to write at least; what benchmarks divide by the time.
  std::int64_t bytes_read() const;
  std::int64_t bytes_written() const;

  // Operations of the matrix products that Run does where no position is ignored, a multiplication and an addition each;
  // 0 for operators without products, and for ref. And in which order it does them where there is a choice, else empty.
  double flops() const;
  std::string_view order() const;

  // Bytes of working memory Run needs. Contents before and after are of no interest; any alignment will do.
  std::size_t scratch_bytes() const;

  // Runs with the caller's working memory. kBadArgument if it is null or too small, and nothing is written.
  // May be called any number of times, also at once on several threads with different scratch.
  Status Run(void* scratch, std::size_t scratch_bytes, const RunOptions& options = {}) const;

  // The same with working memory of its own, freed before it returns.
  Status Run(const RunOptions& options = {}) const;

 private:
  std::unique_ptr<PlanBody> body_;
};

}  // namespace onehot

#endif  // ONEHOT_PLAN_H_
