// The place of this header in older releases.
#ifndef ONEHOT_ACLNNOP_LEVEL2_ACLNN_FUSED_LINEAR_ONLINE_MAX_SUM_H_
#define ONEHOT_ACLNNOP_LEVEL2_ACLNN_FUSED_LINEAR_ONLINE_MAX_SUM_H_

#include "aclnnop/aclnn_fused_linear_online_max_sum.h"

#endif  // ONEHOT_ACLNNOP_LEVEL2_ACLNN_FUSED_LINEAR_ONLINE_MAX_SUM_H_
