// What the rest of the C face asks about memory from aclrtMalloc.
#ifndef ONEHOT_ACLNN_MEMORY_H_
#define ONEHOT_ACLNN_MEMORY_H_

#include <cstddef>
#include <optional>

namespace onehot::aclnn {

// A live block: the bytes that were asked for, not the rounded allocation (contract 7.30).
struct Block {
  const std::byte* base = nullptr;
  std::size_t bytes = 0;
};

// The live block that `address` lies in, or nothing: memory the library does not know is not checked.
std::optional<Block> FindBlock(const void* address);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_MEMORY_H_
