// Calls of the C face as its clients make them, without the repetition.
#ifndef TESTS_ACLNN_OPERATOR_CALL_H_
#define TESTS_ACLNN_OPERATOR_CALL_H_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"

namespace onehot::test {

// What an aclTensor is made from; the fields have the defaults of a plain client.
struct TensorSpec {
  std::vector<std::int64_t> dims = {};
  aclDataType dtype = ACL_FLOAT;
  void* data = nullptr;
  std::optional<std::vector<std::int64_t>> strides = std::nullopt;
  std::int64_t offset = 0;
  aclFormat format = ACL_FORMAT_ND;

  aclTensor* Create() const {
    return aclCreateTensor(dims.data(), dims.size(), dtype, strides ? strides->data() : nullptr, offset, format,
                           dims.data(), dims.size(), data);
  }
};

// A live tensor that is destroyed with the object, unless it was before.
class LiveTensor {
 public:
  explicit LiveTensor(const TensorSpec& spec) : handle_(spec.Create()) {}
  LiveTensor(std::vector<std::int64_t> dims, aclDataType dtype, void* data)
      : LiveTensor(TensorSpec{dims, dtype, data}) {}
  ~LiveTensor() { Destroy(); }
  LiveTensor(const LiveTensor&) = delete;
  LiveTensor& operator=(const LiveTensor&) = delete;

  operator aclTensor*() const { return handle_; }  // NOLINT: stands for the handle in calls
  void Destroy() {
    if (handle_ != nullptr) aclDestroyTensor(handle_);
    handle_ = nullptr;
  }

 private:
  aclTensor* handle_;
};

// What the calls of this thread that failed had to say, newest first; empty if nothing.
inline std::string TakeMessage() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

inline std::uint16_t ToBF16(float exact) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &exact, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline float FromBF16(std::uint16_t x) {
  const std::uint32_t bits = std::uint32_t{x} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// What the two phases said.
struct Outcome {
  aclnnStatus phase1 = -1, phase2 = -1;  // phase 2 stays -1 if it was not reached
  std::uint64_t workspace_size = 0;
  std::string message;
};

// Phase 1, then phase 2 on the default stream with a workspace full of NaN. `get` takes (uint64_t*, aclOpExecutor**).
template <class GetWorkspaceSize, class Launch>
Outcome RunBothPhases(GetWorkspaceSize&& get, Launch&& launch) {
  Outcome outcome;
  TakeMessage();
  aclOpExecutor* executor = nullptr;
  outcome.phase1 = get(&outcome.workspace_size, &executor);
  if (outcome.phase1 == ACLNN_SUCCESS) {
    std::vector<std::byte> workspace(outcome.workspace_size, std::byte{0xFF});
    outcome.phase2 = launch(workspace.data(), outcome.workspace_size, executor, nullptr);
    if (outcome.phase2 != ACLNN_SUCCESS) {
      outcome.message = TakeMessage();
      aclDestroyAclOpExecutor(executor);  // where the launch left it
      aclrtSynchronizeStream(nullptr);    // takes what the stream remembers of it
      TakeMessage();
      return outcome;
    }
  }
  outcome.message = TakeMessage();
  return outcome;
}

}  // namespace onehot::test

#endif  // TESTS_ACLNN_OPERATOR_CALL_H_
