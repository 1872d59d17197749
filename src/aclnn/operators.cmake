# Metadata, executors and operators of the C face; included by CMakeLists.txt here.
set(onehot_aclnn_operator_sources
  embedding.cpp
  embedding_dense_backward.cpp
  executor.cpp
  meta.cpp
  nll_loss.cpp
  nll_loss_backward.cpp
  operator.cpp
  tensor.cpp)
