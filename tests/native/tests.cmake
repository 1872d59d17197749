# Tests of the native API and of what lies under it, one binary: the implementations are walked inside, case by case.
onehot_test(native LIBS onehot_objects SOURCES
  native/backward_bits_test.cpp
  native/backward_cases_test.cpp
  native/backward_halves_test.cpp
  native/backward_large_test.cpp
  native/backward_strides_test.cpp
  native/bad_data_test.cpp
  native/big_test.cpp
  native/cases.cpp
  native/data.cpp
  native/dtype_test.cpp
  native/embedding_test.cpp
  native/errors_test.cpp
  native/layout_test.cpp
  native/losses.cpp
  native/oracle.cpp
  native/oracle_test.cpp
  native/properties_test.cpp
  native/reported_faults_test.cpp
  native/run_test.cpp
  native/select_test.cpp
  native/tensor.cpp)
