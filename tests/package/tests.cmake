# The installed package, as strangers use it: installed once into a temporary prefix, which is then moved, so that nothing can
# lean on the build tree or on the prefix it was made for. Each check is a function of check.sh.
#
# Not under sanitizers: their runtimes want to be linked into the program itself, and most programs here know nothing of them.
if(NOT (ONEHOT_INSTALL AND ONEHOT_ACLNN AND ONEHOT_CLI) OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  return()
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(onehot_package_test name)
  add_test(NAME package.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/package/check.sh ${name})
  set(environment
    "CC=${CMAKE_C_COMPILER}" "CXX=${CMAKE_CXX_COMPILER}" "CMAKE=${CMAKE_COMMAND}" "PYTHON=${Python3_EXECUTABLE}"
    "ROOT=${PROJECT_SOURCE_DIR}" "BUILD=${PROJECT_BINARY_DIR}" "WORK=${PROJECT_BINARY_DIR}/tests/package"
    "VERSION=${PROJECT_VERSION}" "LIBDIR=${CMAKE_INSTALL_LIBDIR}")
  set_tests_properties(package.${name} PROPERTIES
    ENVIRONMENT "${environment}" TIMEOUT 300 FIXTURES_REQUIRED package)
endfunction()

onehot_package_test(install)
set_tests_properties(package.install PROPERTIES FIXTURES_REQUIRED "" FIXTURES_SETUP package)

onehot_package_test(destdir)
onehot_package_test(headers)
onehot_package_test(find_package)
onehot_package_test(pkg_config)
onehot_package_test(environment)
onehot_package_test(vendor_cmake)
onehot_package_test(vendor_make)
onehot_package_test(vendor_binary)
onehot_package_test(exports)
onehot_package_test(dlopen)
onehot_package_test(ctypes)
onehot_package_test(tool)
