// The place of this header in older releases.
#ifndef ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS2D_H_
#define ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS2D_H_

#include "aclnnop/aclnn_nll_loss2d.h"

#endif  // ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS2D_H_
