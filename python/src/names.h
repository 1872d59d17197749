// What arguments are called in Python, where the library has another name for them.
#ifndef ONEHOT_PYTHON_NAMES_H_
#define ONEHOT_PYTHON_NAMES_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "onehot/status.h"

namespace onehot::python {

// What the library calls an argument, and its name here.
struct NameHere {
  std::string_view from, to;
};

// Those of linear cross entropy.
inline constexpr NameHere kLinearNames[] = {{"upstream.loss", "grad_loss"},
                                            {"upstream.log_probability", "grad_log_probability"},
                                            {"upstream.entropy", "grad_entropy"},
                                            {"grad.input", "grad_input"},
                                            {"grad.weight", "grad_weight"},
                                            {"grad.bias", "grad_bias"},
                                            {"class weight", "weight"},
                                            {"weight", "linear_weight"},
                                            {"bias", "linear_bias"}};

// The status with these names in its sentence.
inline Status Renamed(const Status& status, std::span<const NameHere> names) {
  if (status.ok()) return status;
  std::string sentence = status.message();
  bool begun = false;  // its first word was renamed, and may not be again
  for (const auto& [from, to] : names) {
    // Names with a dot are nothing else wherever they stand; others are words, too, but where a sentence begins.
    if (from.find('.') != std::string_view::npos) {
      for (std::size_t at = 0; (at = sentence.find(from, at)) != std::string::npos; at += to.size())
        sentence.replace(at, from.size(), to);
    } else if (!begun && sentence.starts_with(from) && sentence.substr(from.size(), 1) == ":") {
      sentence.replace(0, from.size(), to);
      begun = true;
    }
  }
  return Status::Error(status.code(), std::move(sentence));
}

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_NAMES_H_
