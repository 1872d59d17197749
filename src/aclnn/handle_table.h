// Handles of tensors, scalars, arrays, lists and executors. A handle is a ticket, not an address: the place of the
// object in the table, how often that place was used before, and the kind of object. So a destroyed handle stays
// invalid after its place is taken again, and pointers that never were handles are recognised without following them.
#ifndef ONEHOT_ACLNN_HANDLE_TABLE_H_
#define ONEHOT_ACLNN_HANDLE_TABLE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace onehot::aclnn {

// Odd, so that no address of an aligned object is a ticket.
enum class HandleKind : std::uint8_t {
  kTensor = 1,
  kScalar = 3,
  kIntArray = 5,
  kFloatArray = 7,
  kBoolArray = 9,
  kTensorList = 11,
  kScalarList = 13,
  kExecutor = 15,
};

// A lock that is held for tens of nanoseconds and nearly always free. A call of two phases takes about seven of them,
// and each costs half of what a mutex does.
class SpinLock {
 public:
  void lock() {
    while (held_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

// Threads add to a shard each, so that they rarely meet at a lock. Shards for as many threads as usually call at once.
inline constexpr std::uint32_t kHandleShards = 16;

inline std::uint32_t ThisThreadsShard() {
  static std::atomic<std::uint32_t> threads{0};
  thread_local const std::uint32_t shard = threads.fetch_add(1, std::memory_order_relaxed) % kHandleShards;
  return shard;
}

// Thread-safe. T is default constructible and movable.
template <class T, HandleKind kKind>
class HandleTable {
 public:
  // One table per kind, never destroyed: clients may destroy handles while the process ends.
  static HandleTable& Instance() {
    static auto& table = *new HandleTable;
    return table;
  }

  void* Add(T value) {
    const std::uint32_t at = ThisThreadsShard();
    Shard& shard = shards_[at];
    const std::lock_guard lock(shard.lock);
    std::uint32_t place = shard.free;
    if (place != kNone) {
      shard.free = shard.slots[place].next_free;
    } else {
      place = static_cast<std::uint32_t>(shard.slots.size());
      if (place == kMaxPlaces) throw std::length_error("too many live handles");
      shard.slots.emplace_back();
    }
    Slot& slot = shard.slots[place];
    slot.value = std::move(value);
    slot.live = true;
    const std::uint64_t ticket = std::uint64_t{slot.uses} << 32 | std::uint64_t{place} << 8 | std::uint64_t{at} << 4 |
                                 static_cast<std::uint64_t>(kKind);
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(ticket));
  }

  // Calls visit(T&) under the lock of the object if the handle is live; says whether it is. visit must be short and
  // must not come back to the table.
  template <class F>
  bool With(const void* handle, F&& visit) {
    return Locked(handle, [&](Shard&, std::uint32_t, Slot& slot) { visit(slot.value); });
  }

  bool IsLive(const void* handle) {
    return With(handle, [](const T&) {});
  }

  // Takes the object out; nothing if the handle is not live.
  std::optional<T> Take(const void* handle) {
    std::optional<T> taken;
    Locked(handle, [&](Shard& shard, std::uint32_t place, Slot& slot) {
      taken = std::exchange(slot.value, T{});
      slot.live = false;
      ++slot.uses;  // the handle given out before is now a used ticket
      slot.next_free = shard.free;
      shard.free = place;
    });
    return taken;
  }

 private:
  static_assert(sizeof(void*) == 8,
                "a ticket has 64 bits: 32 for uses, 24 for the place, 4 for the shard, 4 for the kind");
  static_assert(kHandleShards == 16);
  static constexpr std::uint32_t kMaxPlaces = 1u << 24;
  static constexpr std::uint32_t kNone = ~0u;

  struct Slot {
    T value{};
    std::uint32_t uses = 1;
    std::uint32_t next_free = kNone;
    bool live = false;
  };
  struct alignas(64) Shard {
    SpinLock lock;
    std::vector<Slot> slots;
    std::uint32_t free = kNone;
  };

  template <class F>
  bool Locked(const void* handle, F&& act) {
    const auto ticket = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(handle));
    if ((ticket & 15) != static_cast<std::uint64_t>(kKind)) return false;
    Shard& shard = shards_[ticket >> 4 & 15];
    const std::uint32_t place = static_cast<std::uint32_t>(ticket) >> 8;
    const std::lock_guard lock(shard.lock);
    if (place >= shard.slots.size()) return false;
    Slot& slot = shard.slots[place];
    if (!slot.live || slot.uses != ticket >> 32) return false;
    act(shard, place, slot);
    return true;
  }

  std::array<Shard, kHandleShards> shards_;
};

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_HANDLE_TABLE_H_
