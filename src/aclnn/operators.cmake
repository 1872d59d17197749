# Metadata, executors and operators of the C face; included by CMakeLists.txt here.
set(onehot_aclnn_operator_sources
  embedding.cpp
  embedding_dense_backward.cpp
  executor.cpp
  fused_cross_entropy_loss_with_max_sum.cpp
  fused_linear.cpp
  fused_linear_cross_entropy_loss_grad.cpp
  fused_linear_online_max_sum.cpp
  meta.cpp
  nll_loss.cpp
  nll_loss_backward.cpp
  operator.cpp
  tensor.cpp)
