#ifndef ONEHOT_PYTHON_LOSSES_H_
#define ONEHOT_PYTHON_LOSSES_H_

#include "arguments.h"
#include "onehot/cross_entropy.h"

namespace onehot::python {

// The options that cross entropy has in all its forms.
CrossEntropyOptions LossOptions(Arguments& arguments);

}  // namespace onehot::python

#endif  // ONEHOT_PYTHON_LOSSES_H_
