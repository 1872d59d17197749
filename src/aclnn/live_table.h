// Handles given out and not yet taken back. A pointer that is not in the table is foreign or destroyed, and no call
// follows it.
#ifndef ONEHOT_ACLNN_LIVE_TABLE_H_
#define ONEHOT_ACLNN_LIVE_TABLE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace onehot::aclnn {

// Thread-safe. Objects are shared, so that one thread may destroy a handle while another is inside a call with it. A
// handle is a number that is never given out again, not an address, so that a destroyed one stays invalid. T has a
// member `void* handle`.
template <class T>
class LiveTable {
 public:
  // `kind` tells the handles of different tables apart; even and below 16, which makes them the address of no object.
  explicit LiveTable(std::uintptr_t kind) : next_(16 + kind) {}

  void* Add(std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    void* const handle = reinterpret_cast<void*>(next_);
    object->handle = handle;
    live_.emplace(handle, std::move(object));
    next_ += 16;
    return handle;
  }

  // The live object behind the handle, or null.
  std::shared_ptr<T> Find(const void* handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
  }

  // Takes the handle out and gives its object, or null if it was not in.
  std::shared_ptr<T> Remove(const void* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    if (found == live_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    live_.erase(found);
    return object;
  }

  std::vector<std::shared_ptr<T>> All() const {
    std::vector<std::shared_ptr<T>> all;
    const std::lock_guard lock(mutex_);
    for (const auto& entry : live_) all.push_back(entry.second);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::uintptr_t next_;
  std::unordered_map<const void*, std::shared_ptr<T>> live_;
};

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_LIVE_TABLE_H_
