// The place of this header in older releases.
#ifndef ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS2D_BACKWARD_H_
#define ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS2D_BACKWARD_H_

#include "aclnnop/aclnn_nll_loss2d_backward.h"

#endif  // ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS2D_BACKWARD_H_
