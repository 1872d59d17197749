#include "onehot/plan.h"

#include <fmt/format.h>

#include <new>

#include "core/plan_body.h"

namespace onehot {

Plan::Plan(std::unique_ptr<PlanBody> body) : body_(std::move(body)) {}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

std::string_view Plan::implementation() const {
  return considered().back().implementation;
}
std::string_view Plan::instruction_set() const {
  return body_->instruction_set();
}
std::span<const Considered> Plan::considered() const {
  return body_->considered();
}
double Plan::flops() const {
  return body_->flops();
}
std::string_view Plan::order() const {
  return body_->order();
}
std::int64_t Plan::bytes_read() const {
  return body_->bytes_read();
}
std::int64_t Plan::bytes_written() const {
  return body_->bytes_written();
}
std::size_t Plan::scratch_bytes() const {
  return body_->scratch_bytes();
}

Status Plan::Run(void* scratch, std::size_t scratch_bytes, const RunOptions& options) const {
  if (!body_->missing().empty())
    return Status::Error(Code::kNullArgument, fmt::format("{}: data must not be null", body_->missing()));
  const std::size_t needed = body_->scratch_bytes();
  if (needed > 0 && scratch == nullptr)
    return Status::Error(Code::kBadArgument, fmt::format("scratch: must be {} bytes, is null", needed));
  if (scratch_bytes < needed)
    return Status::Error(Code::kBadArgument,
                         fmt::format("scratch: must be at least {} bytes, is {}", needed, scratch_bytes));
  return body_->Run(Scratch(scratch), options);
}

Status Plan::Run(const RunOptions& options) const {
  if (!body_->missing().empty()) return Run(nullptr, 0, options);  // which says so; no memory is needed for that
  const std::size_t bytes = body_->scratch_bytes();
  // A plain new[] writes nothing: implementations decide which thread touches fresh pages first.
  const std::unique_ptr<std::byte[]> scratch(new (std::nothrow) std::byte[bytes]);
  if (scratch == nullptr)
    return Status::Error(Code::kOutOfMemory, fmt::format("scratch: no memory for {} bytes", bytes));
  return Run(scratch.get(), bytes, options);
}

}  // namespace onehot
