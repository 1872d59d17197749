# One entry for each file: they run side by side. Not a list by hand: a test file that is not in it would never run.
#
# A file that needs what this machine lacks (PyTorch, JAX) is skipped as a whole, which pytest ends with 5. With
# ONEHOT_REQUIRE_ALL=1 conftest.py makes failures of skips.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.py)
foreach(file IN LISTS files)
  cmake_path(GET file STEM name)
  string(REGEX REPLACE "^test_" "" name ${name})
  add_test(NAME python.${name} COMMAND ${Python_EXECUTABLE} -B -m pytest -q -rs ${file})
  set_tests_properties(python.${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 5
                       ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python")
endforeach()

add_test(NAME python.exports COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DMODULE=$<TARGET_FILE:onehot_python>
                                     -P ${CMAKE_CURRENT_LIST_DIR}/exports.cmake)
