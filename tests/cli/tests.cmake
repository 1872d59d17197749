if(TARGET onehot_cli)
  onehot_test(cli_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/npy_test.cpp ${CMAKE_CURRENT_LIST_DIR}/progress_test.cpp
              LIBS onehot_cli_parts)

  # The binary from end to end, against NumPy.
  find_program(ONEHOT_PYTHON_NUMPY NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH
               DOC "A Python interpreter that has NumPy, for the tests of the command line")
  find_program(ONEHOT_PYTHON_NUMPY NAMES python3)
  execute_process(COMMAND ${ONEHOT_PYTHON_NUMPY} -c "import numpy" RESULT_VARIABLE without_numpy ERROR_QUIET)
  if(NOT without_numpy EQUAL 0)
    message(FATAL_ERROR "${ONEHOT_PYTHON_NUMPY} has no NumPy: install python3-numpy (scripts/install-deps does), or set "
                        "ONEHOT_PYTHON_NUMPY")
  endif()
  # One entry for each class of the scripts: they run side by side.
  foreach(group operators.Backward operators.Formats operators.Indices operators.Forward files.BadFiles files.Refusals
                files.Output files.Large nll_loss.NllLoss nll_loss.NllLossBackward nll_loss.NllRefusals
                nll_loss.NllParity cross_entropy.CrossEntropy cross_entropy.CrossEntropyBackward
                cross_entropy.CrossEntropyRefusals cross_entropy.CrossEntropyParity
                linear_cross_entropy.LinearCrossEntropy linear_cross_entropy.LinearCrossEntropyBackward
                linear_cross_entropy.LinearCrossEntropyParity
                linear_cross_entropy_refusals.LinearCrossEntropyRefusals)
    string(REPLACE "." "_test.py;" script_and_class ${group})
    list(GET script_and_class 0 script)
    list(GET script_and_class 1 class)
    add_test(NAME cli.${class} COMMAND ${ONEHOT_PYTHON_NUMPY} -B ${CMAKE_CURRENT_LIST_DIR}/${script} ${class})
    set_tests_properties(cli.${class} PROPERTIES TIMEOUT 300 ENVIRONMENT "ONEHOT=$<TARGET_FILE:onehot_cli>"
                         SKIP_RETURN_CODE 77)  # what main of case.py ends with where there is no PyTorch
  endforeach()
  # Takes 4 GiB of page cache, and times what it does.
  set_tests_properties(cli.Large PROPERTIES RUN_SERIAL TRUE)
endif()
