#ifndef ONEHOT_CPU_CACHE_H_
#define ONEHOT_CPU_CACHE_H_

#include <cstdint>

namespace onehot::cpu {

// Whether an output is stored past the caches: where it and what is read for it do not fit the last one, it would not
// stay there, and an ordinary store reads the line first. Otherwise it is left in cache for whoever reads it next.
bool PastCaches(std::int64_t bytes_read, std::int64_t bytes_written);

// Lets a test have outputs above 4 MiB stored past the caches whatever is read and however large the caches are.
void ForgetCachesForTest(bool forget);

}  // namespace onehot::cpu

#endif  // ONEHOT_CPU_CACHE_H_
