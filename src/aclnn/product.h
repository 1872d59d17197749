// The product whose documented limits hold: environment variable ONEHOT_SOC (contract 7.12).
#ifndef ONEHOT_ACLNN_PRODUCT_H_
#define ONEHOT_ACLNN_PRODUCT_H_

#include <cstdint>

#include "onehot/status.h"

namespace onehot::aclnn {

enum class Product : std::uint8_t {
  kAscend910A,    // Atlas training products
  kAscend910B,    // A2, the default
  kAscend910_93,  // A3
  kAscend950,
};

// As it is written in ONEHOT_SOC and returned by aclrtGetSocName.
const char* Name(Product product);

// Reads ONEHOT_SOC now; unset or empty is Ascend910B. Another name fails with a sentence that lists the known ones.
onehot::Result<Product> CurrentProduct();

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_PRODUCT_H_
