// Tensors larger than memory.
#ifndef TESTS_NATIVE_RESERVED_H_
#define TESTS_NATIVE_RESERVED_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "tests/native/tensor.h"

namespace onehot::test {

// Address space of which only the pages that are touched take memory. Zero at first.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Reserved() {
    if (ok()) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

}  // namespace onehot::test

#endif  // TESTS_NATIVE_RESERVED_H_
