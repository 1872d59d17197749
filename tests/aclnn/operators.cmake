# Metadata, executors and operators, through the C face alone. OpenMP is there to set the number of threads.
onehot_test(aclnn_operators LIBS onehot_aclnn OpenMP::OpenMP_CXX SOURCES
  aclnn/embedding_dense_backward_refusals_test.cpp
  aclnn/embedding_dense_backward_test.cpp
  aclnn/embedding_test.cpp
  aclnn/executor_test.cpp
  aclnn/meta_test.cpp)
