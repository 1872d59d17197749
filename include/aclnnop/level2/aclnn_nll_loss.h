// The place of this header in older releases.
#ifndef ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS_H_
#define ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS_H_

#include "aclnnop/aclnn_nll_loss.h"

#endif  // ONEHOT_ACLNNOP_LEVEL2_ACLNN_NLL_LOSS_H_
