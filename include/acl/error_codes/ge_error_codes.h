// The graph engine is not part of onehot. The file exists because programs include it by name.
#ifndef ONEHOT_ACL_ERROR_CODES_GE_ERROR_CODES_H_
#define ONEHOT_ACL_ERROR_CODES_GE_ERROR_CODES_H_

#endif  // ONEHOT_ACL_ERROR_CODES_GE_ERROR_CODES_H_
