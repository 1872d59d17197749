// Scalars, arrays and lists: what operators and executors ask about them.
#ifndef ONEHOT_ACLNN_META_H_
#define ONEHOT_ACLNN_META_H_

#include "aclnn/acl_meta.h"

namespace onehot::aclnn {

bool IsLive(const aclTensorList* list);

}  // namespace onehot::aclnn

#endif  // ONEHOT_ACLNN_META_H_
