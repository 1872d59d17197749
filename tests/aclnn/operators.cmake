# Metadata, executors and operators, through the C face alone. OpenMP is there to set the number of threads.
onehot_test(aclnn_operators_test LIBS onehot_aclnn OpenMP::OpenMP_CXX SOURCES
  aclnn/embedding_dense_backward_refusals_test.cpp
  aclnn/embedding_dense_backward_test.cpp
  aclnn/embedding_test.cpp
  aclnn/executor_test.cpp
  aclnn/meta_test.cpp
  aclnn/nll_loss_bad_targets_test.cpp
  aclnn/nll_loss_clients_test.cpp
  aclnn/nll_loss_refusals_test.cpp
  aclnn/nll_loss_test.cpp
  aclnn/nll_loss_views_test.cpp)
target_include_directories(aclnn_operators_test PRIVATE ${PROJECT_SOURCE_DIR}/src)  # for tests/native/strides.h
# The glue between the two phases, on an operator of the test's own.
onehot_test(aclnn_operator_internal_test LIBS onehot_aclnn_objects SOURCES aclnn/operator_test.cpp)
# The C face against the native operators.
onehot_test(aclnn_native_test LIBS onehot_aclnn onehot SOURCES
  aclnn/nll_loss_native_test.cpp
  native/data.cpp
  native/tensor.cpp)
target_include_directories(aclnn_native_test PRIVATE ${PROJECT_SOURCE_DIR}/src)
# The fused operators. Tensors, data and bounds are those of the native tests.
onehot_test(aclnn_fused_test LIBS onehot_aclnn onehot OpenMP::OpenMP_CXX SOURCES
  aclnn/fused_call.cpp
  aclnn/fused_clients_test.cpp
  aclnn/fused_cross_entropy_loss_with_max_sum_test.cpp
  aclnn/fused_linear_cross_entropy_loss_grad_test.cpp
  aclnn/fused_linear_online_max_sum_test.cpp
  aclnn/fused_oracle.cpp
  aclnn/fused_refusals_test.cpp
  aclnn/fused_shards_test.cpp
  native/data.cpp
  native/oracle.cpp
  native/tensor.cpp)
target_include_directories(aclnn_fused_test PRIVATE ${PROJECT_SOURCE_DIR}/src)
