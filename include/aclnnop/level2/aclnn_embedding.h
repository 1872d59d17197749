// The place of this header in older releases.
#ifndef ONEHOT_ACLNNOP_LEVEL2_ACLNN_EMBEDDING_H_
#define ONEHOT_ACLNNOP_LEVEL2_ACLNN_EMBEDDING_H_

#include "aclnnop/aclnn_embedding.h"

#endif  // ONEHOT_ACLNNOP_LEVEL2_ACLNN_EMBEDDING_H_
