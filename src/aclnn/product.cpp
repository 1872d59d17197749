#include "aclnn/product.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <string_view>

extern "C" char** environ;

namespace onehot::aclnn {
namespace {

// In the order of Product.
constexpr std::array<const char*, 4> kNames = {"Ascend910A", "Ascend910B", "Ascend910_93", "Ascend950"};

// A plain walk: phase 1 asks on every call, and getenv costs a string comparison for every variable.
std::string_view SocVariable() {
  constexpr std::string_view kPrefix = "ONEHOT_SOC=";
  if (environ == nullptr) return {};
  for (char** variable = environ; *variable != nullptr; ++variable)
    if ((*variable)[0] == 'O' && std::strncmp(*variable, kPrefix.data(), kPrefix.size()) == 0)
      return *variable + kPrefix.size();
  return {};
}

}  // namespace

const char* Name(Product product) {
  return kNames[static_cast<std::size_t>(product)];
}

onehot::Result<Product> CurrentProduct() {
  const std::string_view name = SocVariable();
  if (name.empty()) return Product::kAscend910B;
  for (std::size_t place = 0; place < kNames.size(); ++place)
    if (name == kNames[place]) return static_cast<Product>(place);
  return Status::Error(Code::kBadArgument,
                       fmt::format("ONEHOT_SOC: must be one of {}, is {}", fmt::join(kNames, ", "), name));
}

}  // namespace onehot::aclnn
