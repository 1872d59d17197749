// The place of this header in older releases.
#ifndef ONEHOT_ACLNNOP_LEVEL2_ACLNN_EMBEDDING_DENSE_BACKWARD_H_
#define ONEHOT_ACLNNOP_LEVEL2_ACLNN_EMBEDDING_DENSE_BACKWARD_H_

#include "aclnnop/aclnn_embedding_dense_backward.h"

#endif  // ONEHOT_ACLNNOP_LEVEL2_ACLNN_EMBEDDING_DENSE_BACKWARD_H_
