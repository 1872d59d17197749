// How onehot reports failure: a code to act on, and one sentence for a person.
//
// Nothing in the library throws, aborts or prints. A sentence names the argument, the rule and the value:
//   "indices[1, 2] (position 5) = 10 is outside [0, 10)"
#ifndef ONEHOT_STATUS_H_
#define ONEHOT_STATUS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace onehot {

enum class Code : std::uint8_t {
  kOk,
  kNullArgument,  // a pointer that must not be null is null
  kBadDType,      // a dtype outside the operator's list
  kBadShape,      // rank, extents or strides do not fit
  kBadArgument,   // an attribute, an environment variable, or the scratch given to Run
  kBadData,       // an index or target value out of range; found by Run, before anything is written
  kUnsupported,   // well formed, but nothing here can run it
  kCancelled,     // the progress callback said stop; outputs are undefined
  kOutOfMemory,   // scratch that Run was to take itself could not be had
};

class [[nodiscard]] Status {
 public:
  static Status Ok() { return {}; }
  static Status Error(Code code, std::string message) {
    Status status;
    status.code_ = code;
    status.message_ = std::move(message);
    return status;
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// A value, or the status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit, so that `return value;` works
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: the same for `return status;`

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace onehot

#endif  // ONEHOT_STATUS_H_
